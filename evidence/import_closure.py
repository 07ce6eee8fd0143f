"""Which files a Python file needs, by its import statements alone (docs/spec/evidence.md E4).

So whoever has the sources can tell that a list of them is complete, without building anything.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

# The text of a file of the repository; None where there is none.
Reader = Callable[[str], str | None]


def imported_names(source: str) -> Iterator[str]:
    """Dotted names that may be modules: of `from a import b`, both `a` and `a.b`.

    Raises SyntaxError.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_of(name: str) -> Iterator[str]:
    """Where the module of this name may be, and the packages above it; generated ones nowhere."""
    parts = name.split(".")
    if name.endswith("_pb2"):
        return
    for length in range(1, len(parts) + 1):
        yield "/".join(parts[:length]) + "/__init__.py"
    yield "/".join(parts) + ".py"


def import_closure(start: str, read: Reader) -> dict[str, str]:
    """`start` and every file that it imports, directly or through others: path to text.

    Raises SyntaxError for a file that is no Python.
    """
    found: dict[str, str] = {}
    waiting = [start]
    while waiting:
        path = waiting.pop()
        text = read(path)
        if path in found or text is None:
            continue
        found[path] = text
        waiting += {file for name in imported_names(text) for file in files_of(name)}
    return found
