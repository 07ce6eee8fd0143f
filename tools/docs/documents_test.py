"""Every document's links and targets exist; planted ones that do not are found."""

from __future__ import annotations

import re
from pathlib import Path

from tools.docs.documents import broken_links, missing_targets, missing_tests

ROOT = Path()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_NAME = re.compile(r'^    name = "([^"]+)"', re.MULTILINE)


def exists(path: str) -> bool:
    return (ROOT / path).exists()


def names_of(package: str) -> frozenset[str] | None:
    file = ROOT / package / "BUILD.bazel"
    return frozenset(_NAME.findall(file.read_text())) if file.is_file() else None


def test_documents_are_here() -> None:
    names = {path.as_posix() for path in DOCUMENTS}
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/spec/frame.md"} <= names


def test_links_lead_somewhere() -> None:
    found = [
        problem
        for path in DOCUMENTS
        for problem in broken_links(path.as_posix(), path.read_text("utf-8"), exists)
    ]
    assert found == []


def test_targets_exist() -> None:
    found = [
        problem
        for path in DOCUMENTS
        for problem in missing_targets(path.as_posix(), path.read_text("utf-8"), names_of)
    ]
    assert found == []


def text_of(path: str) -> str | None:
    file = ROOT / path
    return file.read_text("utf-8") if file.is_file() else None


def test_tests_exist() -> None:
    found = [
        problem
        for path in DOCUMENTS
        for problem in missing_tests(path.as_posix(), path.read_text("utf-8"), text_of)
    ]
    assert found == []


def test_readme_shows_the_two_commands_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "tools/bazel run //coordinator" in readme
    assert "tools/bazel test //..." in readme
    assert re.search(
        r"tools/bazel test\b[^&|;]*//\.\.\.", (ROOT / ".ci/run").read_text(), re.DOTALL
    )


def test_a_planted_link_is_found() -> None:
    text = "see [a](b.md), [c](../d.md#part) and [e](https://example.org/f)"
    known = {"docs/b.md"}.__contains__
    assert list(broken_links("docs/x.md", text, known)) == ["docs/x.md: link to ../d.md"]


def test_a_planted_target_is_found() -> None:
    def names(package: str) -> frozenset[str] | None:
        return {"wire": frozenset({"wire", "frame"})}.get(package)

    text = "`//wire`, `//wire:frame`, `//wire:fame`, `//wrie` and `//...` or `//wire/...`"
    found = list(missing_targets("x.md", text, names))
    assert found == ["x.md: target //wire:fame", "x.md: target //wrie"]


def test_a_planted_test_is_found() -> None:
    source = "def test_one(folder: Path) -> None:"
    text = "`a/x_test.py::test_one`, `::test_two`; `b/y_test.py`, `a/x_test.py`, `::test_one`"
    found = list(missing_tests("d.md", text, {"a/x_test.py": source}.get))
    assert found == ["d.md: test a/x_test.py::test_two", "d.md: file b/y_test.py"]
