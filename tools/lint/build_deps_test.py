"""Dependencies against imports: each kind of import, undeclared and declared, and unused ones."""

from __future__ import annotations

import pytest

from tools.lint import build_deps
from tools.lint.build_targets import UnreadableError, absolute, closure, read, sources_of_tests

BUILD = """\
py_library(
    name = "frame",
    srcs = ["frame.py"],
    deps = [{deps}],
)

pytest_test(
    name = "frame_test",
    srcs = ["frame_test.py"],
    deps = [":frame"],
)

py_proto(
    name = "demo_pb2",
    src = "demo.proto",
)
"""
ERRORS = 'py_library(\n    name = "errors",\n    srcs = ["__init__.py"],\n)\n'
INDEPENDENT = """\
py_library(
    name = "a",
    srcs = ["a.py"],
    imports = ["."],
    deps = [":b"],
)

py_library(
    name = "b",
    srcs = ["b.py"],
    imports = ["."],
)
"""


def findings(frame: str, deps: str, **sources: str) -> list[str]:
    """The findings for a wire/frame.py with this text and these dependencies."""
    files = {"wire/BUILD.bazel": BUILD.format(deps=deps), "errors/BUILD.bazel": ERRORS}
    targets = {path: read(path, text) for path, text in files.items()}
    texts = {
        "errors/__init__.py": "",
        "wire/frame.py": frame,
        "wire/frame_test.py": "import pytest\nfrom wire import frame\n",
    }
    return [str(finding) for finding in build_deps.check(targets, texts | sources)]


DECLARED = {
    "standard library": ("import struct", ""),
    "package": ("from errors import TPError", '"//errors"'),
    "wheel": ("import numpy as np", 'requirement("numpy")'),
    "generated module": ("from wire import demo_pb2", '":demo_pb2"'),
}


@pytest.mark.parametrize(("source", "deps"), DECLARED.values(), ids=DECLARED)
def test_declared(source: str, deps: str) -> None:
    assert findings(source, deps) == []


@pytest.mark.parametrize(
    "source", [source for source, deps in DECLARED.values() if deps], ids=list(DECLARED)[1:]
)
def test_undeclared(source: str) -> None:
    (finding,) = findings(source, "")
    assert "does not depend on" in finding


@pytest.mark.parametrize("deps", [deps for _, deps in DECLARED.values() if deps])
def test_unused(deps: str) -> None:
    (finding,) = findings("", deps)
    assert "does not import it" in finding


def test_a_module_of_nobody() -> None:
    (finding,) = findings("import wire.absent", "")
    assert "a target that provides wire.absent" in finding


def test_a_source_of_no_target() -> None:
    (finding,) = findings("", "", **{"wire/forgotten.py": ""})
    assert finding.startswith("wire/forgotten.py:0")


def test_imports_for_type_checkers_are_free() -> None:
    assert findings("if TYPE_CHECKING:\n    import numpy\n", "") == []


def test_bare_names_where_the_package_is_an_import_root() -> None:
    targets = {
        "verifier/independent/BUILD.bazel": read("verifier/independent/BUILD.bazel", INDEPENDENT)
    }
    sources = {"verifier/independent/a.py": "from b import x", "verifier/independent/b.py": ""}
    assert list(build_deps.check(targets, sources)) == []


def test_a_program_over_a_library_of_the_same_source() -> None:
    text = """\
py_library(
    name = "main",
    srcs = ["main.py"],
    deps = ["//errors"],
)

py_binary(
    name = "worker",
    srcs = ["main.py"],
    deps = [":main"],
)
"""
    files = {"worker/BUILD.bazel": text, "errors/BUILD.bazel": ERRORS}
    targets = {path: read(path, build) for path, build in files.items()}
    sources = {"worker/main.py": "import errors", "errors/__init__.py": ""}
    assert list(build_deps.check(targets, sources)) == []


def test_named_and_added_lists_are_read() -> None:
    text = 'D = [":a"]\n\npy_library(name = "x", srcs = ["x.py"], deps = D + [":b"])\n'
    (target,) = read("wire/BUILD.bazel", text)
    assert target.deps == {"//wire:a", "//wire:b"}


def test_computed_lists_are_refused() -> None:
    text = 'py_library(name = "x", srcs = ["x.py"], deps = [n for n in D])\n'
    with pytest.raises(UnreadableError):
        read("wire/BUILD.bazel", text)


RUN = """\
py_library(
    name = "a",
    srcs = ["a.py"],
    deps = [":b"],
)

py_library(
    name = "b",
    srcs = ["b.py"],
)

py_library(
    name = "fake",
    testonly = True,
    srcs = ["fake.py"],
    deps = [":a"],
)

pytest_test(
    name = "a_test",
    srcs = ["a_test.py"],
)

py_library(
    name = "both",
    srcs = ["a_test.py"],
)
"""


def test_closure_and_test_only_sources() -> None:
    targets = read("wire/BUILD.bazel", RUN)
    assert closure(targets, ["//wire:a"]) == {"wire/a.py", "wire/b.py"}
    assert closure(targets, ["//wire:absent"]) == frozenset()
    assert sources_of_tests(targets) == {"wire/fake.py"}


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        (":x", "//wire:x"),
        ("x", "//wire:x"),
        ("//errors", "//errors:errors"),
        ("//a/b", "//a/b:b"),
        ("//a/b:c", "//a/b:c"),
        ("@r//:c", "@r//:c"),
    ],
)
def test_absolute(label: str, wanted: str) -> None:
    assert absolute("wire", label) == wanted
