"""Sizes and silencing markers, at and beyond their limits."""

from __future__ import annotations

import pytest

from tools.lint import sizes


def rules(source: str) -> list[str]:
    """The rules that this source breaks."""
    return [finding.rule for finding in sizes.check("wire/x.py", source)]


def function(lines: int, docstring: str = "") -> str:
    """A function of this many lines, without its docstring's."""
    return "def f() -> None:\n" + docstring + "    x = 1\n" * (lines - 1)


def test_file_size() -> None:
    assert rules("x = 1\n" * sizes.FILE_LINES_MAX) == []
    assert rules("x = 1\n" * (sizes.FILE_LINES_MAX + 1)) == ["file-size"]


def test_function_size() -> None:
    assert rules(function(sizes.FUNCTION_LINES_MAX)) == []
    assert rules(function(sizes.FUNCTION_LINES_MAX + 1)) == ["function-size"]
    assert rules("async " + function(sizes.FUNCTION_LINES_MAX + 1)) == ["function-size"]


def test_a_docstring_does_not_count() -> None:
    docstring = '    """One.\n\n' + "    line\n" * 20 + '    """\n'
    assert rules(function(sizes.FUNCTION_LINES_MAX, docstring)) == []
    assert rules(function(sizes.FUNCTION_LINES_MAX + 1, docstring)) == ["function-size"]


@pytest.mark.parametrize("marker", sizes.MARKERS)
def test_markers_need_a_reason(marker: str) -> None:
    assert rules(f"x = 1  # {marker}\n") == ["silenced"]
    assert rules(f"x = 1  # {marker}  reason: the stub of this library is wrong\n") == []
    assert rules(f"x = '{marker}'\n") == []


@pytest.mark.parametrize("name", sizes.SILENCED_TESTS)
def test_silenced_tests_need_a_reason(name: str) -> None:
    assert rules(f"{name}('x')\n") == ["silenced"]
    assert rules(f"{name}('x')  # reason: only where the kernel has it\n") == []
