"""Layout of BUILD files: the accepted form, and one planted fault for each rule."""

from __future__ import annotations

import pytest

from tools.lint import build_layout

GOOD = """\
load("//tools/python:py.bzl", "pytest_test")

# A comment.
exports_files([
    "a.txt",
    "b.txt",
])

USERS = ["//wire:__subpackages__"]

pytest_test(
    name = "frame_test",
    srcs = ["frame_test.py"],
    args = ["--case={}".format(i) for i in range(3)],
    deps = [
        ":frame",  # why
        "//errors",
    ] + select({
        "//conditions:default": [],
    }),
)

fail("no {want}".format(
    want = 1,
))
"""

FAULTS = {
    "trailing space": ("# A comment.", "# A comment. "),
    "tab": ("    name", "\tname"),
    "two blank lines": ("\n\n# A", "\n\n\n# A"),
    "single quotes": ('"frame_test"', "'frame_test'"),
    "indent": ("    srcs =", "  srcs ="),
    "indent of a list": ('        ":frame"', '      ":frame"'),
    "no last comma": ('"//errors",\n    ]', '"//errors"\n    ]'),
    "no last comma in a call": ("want = 1,", "want = 1"),
    "two arguments on a line": ('"frame_test",\n    srcs', '"frame_test", srcs'),
    "first argument not on its line": ("pytest_test(\n    name", "pytest_test(name"),
    "closing bracket not on its line": ('"//errors",\n    ]', '"//errors"]'),
    "closing bracket indented": ("\n)\n\nfail", "\n    )\n\nfail"),
}


def test_good() -> None:
    assert list(build_layout.check("wire/BUILD.bazel", GOOD)) == []


@pytest.mark.parametrize(("before", "after"), FAULTS.values(), ids=FAULTS)
def test_faults(before: str, after: str) -> None:
    assert before in GOOD
    planted = GOOD.replace(before, after, 1)
    assert list(build_layout.check("wire/BUILD.bazel", planted)) != []


@pytest.mark.parametrize("ending", ["", "\n\n"])
def test_end_of_file(ending: str) -> None:
    assert list(build_layout.check("x.bzl", GOOD.rstrip("\n") + ending)) != []
