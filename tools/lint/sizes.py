"""Checks how long a file and its functions are, and markers that hide a problem.

How long a line is, ruff checks.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from tools.lint.finding import Finding
from tools.lint.parsed import nodes

FILE_LINES_MAX = 400
# Without the docstring, which may be as long as the subject needs.
FUNCTION_LINES_MAX = 70

# A marker that silences a check or postpones work needs its reason on the same line. The words
# are put together here, so that this file does not contain them.
MARKERS = tuple(
    "".join(parts)
    for parts in [
        ("type:", " ignore"),
        ("no", "qa"),
        ("fmt:", " off"),
        ("TO", "DO"),
        ("FIX", "ME"),
        ("XX", "X"),
    ]
)
SILENCED_TESTS = ("pytest.skip", "pytest.mark.skip", "pytest.xfail", "pytest.mark.xfail")
REASON = re.compile(r"(?:reason:|because) .{10,}")


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    end = node.end_lineno or node.lineno
    lines = end - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def _silenced(found: Iterable[ast.AST]) -> Iterator[int]:
    for node in found:
        if not isinstance(node, ast.Attribute) or not node.attr.startswith(("skip", "xfail")):
            # Spelling out every attribute would take seconds over the tree.
            continue
        if ast.unparse(node).startswith(SILENCED_TESTS):
            yield node.lineno


def _markers(source: str) -> Iterator[tuple[int, str]]:
    if not any(marker in source for marker in MARKERS):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or REASON.search(token.string):
            continue
        for marker in MARKERS:
            if marker in token.string:
                yield token.start[0], marker


def check(path: str, source: str) -> Iterator[Finding]:
    """Everything in this file that is too long, or silenced without a reason."""
    lines = source.splitlines()
    if len(lines) > FILE_LINES_MAX:
        yield Finding(path, 0, "file-size", f"{len(lines)} lines, at most {FILE_LINES_MAX}")
    found = nodes(source, path)
    for node in found:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = _body_lines(node)
            if count > FUNCTION_LINES_MAX:
                text = f"{node.name} has {count} lines, at most {FUNCTION_LINES_MAX}"
                yield Finding(path, node.lineno, "function-size", text)
    for line_number in _silenced(found):
        if not REASON.search(lines[line_number - 1]):
            yield Finding(path, line_number, "silenced", "a test is silenced without a reason")
    for line_number, marker in _markers(source):
        yield Finding(path, line_number, "silenced", f"{marker} without a reason on its line")
