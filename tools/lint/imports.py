"""Checks one Python file against the import table."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tools.lint import import_table
from tools.lint.finding import Finding
from tools.lint.import_table import Allowed
from tools.lint.parsed import nodes

INDEPENDENT = "verifier/independent/"


def rule_for(path: str) -> Allowed | None:
    """The rule of the longest prefix of this path, if any."""
    parts = PurePosixPath(path).parts
    for length in range(len(parts), 0, -1):
        rule = import_table.TABLE.get("/".join(parts[:length]))
        if rule is not None:
            return rule
    return None


@dataclass(frozen=True)
class Source:
    """A file that is checked."""

    path: str
    # Whether only tests run it.
    is_test: bool
    # Modules that it may import by their bare name.
    siblings: frozenset[str]


def imported(found: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every imported module with its line; `from a import b` gives `a.b`, a relative one `.a`."""
    for node in found:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def _siblings(path: str, all_paths: frozenset[str]) -> frozenset[str]:
    """Modules that the independent verifier may import by their bare name: those beside it."""
    if not path.startswith(INDEPENDENT):
        return frozenset()
    folder = PurePosixPath(path).parent
    return frozenset(
        PurePosixPath(other).stem for other in all_paths if PurePosixPath(other).parent == folder
    )


def _import_problem(file: Source, module: str, rule: Allowed) -> str | None:
    path = file.path
    top = module.split(".")[0]
    if not top:
        return f"relative import of {module}"
    if top in import_table.BANNED_MODULES:
        return f"{top} is banned everywhere"
    if top in import_table.SOCKET_MODULES and not (
        file.is_test or path.startswith(import_table.SOCKET_HOMES)
    ):
        return f"{top} is imported outside {', '.join(import_table.SOCKET_HOMES)}"
    if top in import_table.IMPURE_MODULES and path.startswith(import_table.PURE):
        return None if file.is_test else f"{top} in a function of its arguments"
    if top in sys.stdlib_module_names or top == "__future__":
        return None
    if top in file.siblings:
        return None
    if top in import_table.FIRST_PARTY:
        mine = PurePosixPath(path).parts[0]
        allowed = rule.first_party | {mine}
        if file.is_test:
            if module.startswith(import_table.TEST_MODULES):
                return None
            allowed |= rule.tests | import_table.TEST_PACKAGES
        if top == mine == "verifier" and not _same_part(path, module):
            return f"{module} belongs to another verifier"
        return None if top in allowed else f"{top} is not allowed here"
    allowed = rule.third_party | (import_table.TEST_LIBRARIES if file.is_test else frozenset())
    return None if top in allowed else f"third-party {top} is not allowed here"


def _same_part(path: str, module: str) -> bool:
    """Whether verifier/package/x.py imports from verifier.package and not its sister."""
    return module.startswith(".".join(PurePosixPath(path).parts[:2]))


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    """The dotted name of an expression, with `np` spelled out; empty for anything else."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, aliases)
        return f"{base}.{node.attr}" if base else ""
    return ""


def _aliases(found: Iterable[ast.AST]) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in found:
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _use_problems(file: Source, found: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    path = file.path
    aliases = _aliases(found)
    pure = path.startswith(import_table.PURE) and not file.is_test
    for node in found:
        if isinstance(node, ast.Call):
            name = _dotted(node.func, aliases)
            if name in import_table.BANNED_CALLS:
                yield node.lineno, f"{name}() is banned everywhere"
            for keyword in node.keywords:
                if keyword.arg in import_table.FALSE_KEYWORDS and not _is_false(keyword.value):
                    yield node.lineno, f"{keyword.arg} is False everywhere"
        elif isinstance(node, ast.Attribute | ast.Name):
            name = _dotted(node, aliases)
            if name in import_table.ARRAY_FILES and not path.startswith(
                import_table.ARRAY_FILE_HOMES
            ):
                yield node.lineno, f"{name} reads or writes whatever the file says"
            if pure and name in import_table.IMPURE_ATTRIBUTES:
                yield node.lineno, f"{name} in a function of its arguments"


def check(
    path: str,
    source: str,
    all_paths: frozenset[str] = frozenset(),
    test_only: frozenset[str] = frozenset(),
) -> Iterator[Finding]:
    """Everything in this file that the import table forbids.

    path: relative to the repository root. all_paths: all files, for bare imports of siblings.
    test_only: files that only tests run, besides those named *_test.py.
    """
    rule = rule_for(path)
    if rule is None:
        yield Finding(path, 0, "imports", "no rule in tools/lint/import_table.py covers this path")
        return
    found = nodes(source, path)
    is_test = path.endswith("_test.py") or path in test_only
    file = Source(path, is_test, _siblings(path, all_paths))
    for line, module in imported(found):
        problem = _import_problem(file, module, rule)
        if problem is not None:
            yield Finding(path, line, "imports", problem)
    for line, problem in _use_problems(file, found):
        yield Finding(path, line, "imports", problem)
