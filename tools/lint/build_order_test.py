"""Order in BUILD files: the accepted form, and one planted fault for each rule."""

from __future__ import annotations

import pytest

from tools.lint import build_order

GOOD = """\
load("@pypi//:requirements.bzl", "requirement")
load("@rules_python//python:defs.bzl", "py_binary", "py_library")
load("//tools/python:py.bzl", "pytest_test")
load(":local.bzl", "local")

USERS = ["//wire:__subpackages__"]

local(name = "x")

py_binary(name = "y")

py_library(
    name = "frame",
    testonly = True,
    srcs = ["frame.py"],
    data = [
        "a.txt",
        ":generated",
    ],
    visibility = USERS,
    deps = [
        ":limits",
        "//errors",
        "//wire:metadata",
        "@other//:x",
        requirement("numpy"),
        requirement("protobuf"),
    ],
)

pytest_test(
    name = "frame_test",
    size = "small",
    srcs = ["frame_test.py"],
    shard_count = 2,
)
"""

FAULTS = {
    "loads unsorted": (
        'load("//tools/python:py.bzl", "pytest_test")\nload(":local.bzl", "local")',
        'load(":local.bzl", "local")\nload("//tools/python:py.bzl", "pytest_test")',
    ),
    "loaded names unsorted": ('"py_binary", "py_library"', '"py_library", "py_binary"'),
    "load unused": ('py_binary(name = "y")', ""),
    "load after a call": ('local(name = "x")', 'local(name = "x")\nload(":z.bzl", "local")'),
    "name not first": ('    size = "small",\n', ""),
    "arguments unsorted": (
        '    srcs = ["frame_test.py"],\n    shard_count = 2,',
        '    shard_count = 2,\n    srcs = ["frame_test.py"],',
    ),
    "deps before visibility": ("    visibility = USERS,\n    deps", "    deps"),
    "deps unsorted": ('        "//errors",\n', ""),
    "deps twice": ('        "//errors",\n', '        "//errors",\n        "//errors",\n'),
    "calls unsorted": ('requirement("numpy"),\n', ""),
    "call before a label": ('        "@other//:x",\n', ""),
    "arguments on one line": ('local(name = "x")', 'local(name = "x", srcs = [])'),
    "list on one line": ('srcs = ["frame.py"]', 'srcs = ["a.py", "frame.py"]'),
}
# Some faults move a line instead of dropping it.
MOVED = {
    "name not first": ('    name = "frame_test",', '    size = "small",\n    name = "frame_test",'),
    "deps before visibility": (
        "    ],\n)\n\npytest",
        "    ],\n    visibility = USERS,\n)\n\npytest",
    ),
    "deps unsorted": ('        ":limits",', '        "//errors",\n        ":limits",'),
    "calls unsorted": (
        'requirement("protobuf"),',
        'requirement("protobuf"),\n        requirement("numpy"),',
    ),
    "call before a label": (
        'requirement("protobuf"),',
        'requirement("protobuf"),\n        "@other//:x",',
    ),
}


def test_good() -> None:
    assert list(build_order.check("wire/BUILD.bazel", GOOD)) == []


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    planted = GOOD
    for before, after in (FAULTS[name], MOVED.get(name, ("", ""))):
        assert before in planted
        planted = planted.replace(before, after, 1)
    assert list(build_order.check("wire/BUILD.bazel", planted)) != []


def test_the_order_of_arguments_in_rules_of_code_is_free() -> None:
    planted = GOOD.replace('"a.txt",\n        ":generated"', '":generated",\n        "a.txt"')
    assert list(build_order.check("wire/rules.bzl", planted)) == []
