"""The whole tree keeps its rules: imports, sizes, wording, and the layout of BUILD files.

The sources are those that each package lists (tools/lint/packages.bzl); coverage_test.py proves
that none is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from identity.source import SOURCE_FILES
from tools.lint import build_deps, build_layout, build_order, imports, sizes, tiers, wording
from tools.lint.build_targets import Target, UnreadableError, closure, read, sources_of_tests
from tools.lint.finding import Finding, files, require_none

# Bazel starts a test in the folder of the repository's runfiles.
ROOT = Path.cwd()


def texts(*suffixes: str) -> dict[str, str]:
    """The sources with these endings, by path."""
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in files(ROOT, *suffixes)}


def test_the_tree_is_here() -> None:
    assert "errors/tree.py" in texts(".py")
    assert "BUILD.bazel" in texts("BUILD.bazel")


def test_imports() -> None:
    sources = texts(".py")
    paths = frozenset(sources)
    support = sources_of_tests([target for _, targets in _targets() for target in targets])
    found = [f for path, text in sources.items() for f in imports.check(path, text, paths, support)]
    require_none(found)


def test_sizes() -> None:
    found = [f for path, text in texts(".py").items() for f in sizes.check(path, text)]
    require_none(found)


def test_build_files() -> None:
    found: list[Finding] = []
    for path, text in texts("BUILD.bazel", ".bzl", "WORKSPACE").items():
        found += build_layout.check(path, text)
        # WORKSPACE loads in the order in which repositories come to exist.
        if path != "WORKSPACE":
            found += build_order.check(path, text)
    require_none(found)


def _targets() -> Iterator[tuple[str, list[Target]]]:
    for path, text in texts("BUILD.bazel").items():
        try:
            yield path, read(path, text)
        except UnreadableError as error:
            raise AssertionError(f"{path}: sources and deps are plain lists, not {error}") from None


def test_dependencies_are_declared() -> None:
    require_none(build_deps.check(dict(_targets()), texts(".py")))


def test_every_marked_test_has_a_target() -> None:
    require_none(tiers.check(dict(_targets()), texts(".py")))


def test_the_source_identity_is_of_what_runs() -> None:
    """Every source of a run is in it, and nothing that only tests use."""
    targets = [target for _, listed in _targets() for target in listed]
    assert SOURCE_FILES.keys() >= closure(targets, ["//coordinator:coordinator", "//worker:worker"])
    assert SOURCE_FILES.keys() & sources_of_tests(targets) == set()


def test_wording() -> None:
    suffixes = ("BUILD.bazel", ".bzl", ".c", ".py", ".pyi", ".sh", "WORKSPACE")
    found = [f for path, text in texts(*suffixes).items() for f in wording.check(path, text)]
    require_none(found)
