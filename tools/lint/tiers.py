"""Checks that every test with the marker `exhaustive` is run by a target, and only such targets.

docs/adr/0057 has what the marker is for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tools.lint.build_targets import Target
from tools.lint.finding import Finding
from tools.lint.parsed import nodes

MARKER = "exhaustive"
# It marks the cases that it is given.
HELPER = "tools.python.tiers"
OF_HELPER = frozenset({"tools/python/tiers.py", "tools/python/tiers_test.py"})


def _is_mark(node: ast.expr) -> bool:
    """Of pytest.mark, under this name."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return bool(name == "mark")


def marked(source: str, path: str) -> int | None:
    """The first line that marks a test, or None."""
    lines = [
        node.lineno
        for node in nodes(source, path)
        if (isinstance(node, ast.Attribute) and node.attr == MARKER and _is_mark(node.value))
        or (isinstance(node, ast.ImportFrom) and node.module == HELPER)
    ]
    return min(lines, default=None)


def check(targets: Mapping[str, list[Target]], sources: Mapping[str, str]) -> Iterator[Finding]:
    """Every marked file whose target runs one tier alone, and every second tier without a test.

    targets: by BUILD file. sources: the text of each Python file, by path.
    """
    lines = {path: marked(text, path) for path, text in sources.items() if path not in OF_HELPER}
    runners: dict[str, list[Target]] = {}
    for build_file, listed in targets.items():
        for target in listed:
            if target.kind not in ("pytest_test", "browser_test"):
                continue
            for path in target.sources:
                runners.setdefault(path, []).append(target)
            if target.exhaustive and not any(lines.get(path) for path in target.sources):
                text = f"{target.label} is exhaustive and no test of it is marked"
                yield Finding(build_file, target.line, "tiers", text)
    for path, line in lines.items():
        if line is None:
            continue
        if path not in runners:
            yield Finding(path, line, "tiers", "only the sources of a test mark tests")
        for target in runners.get(path, []):
            if not target.exhaustive:
                text = f"{target.label} needs exhaustive = True: it has a marked test"
                yield Finding(path, line, "tiers", text)
