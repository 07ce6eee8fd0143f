"""Syntax trees of files: several checks read each, and parsing costs more than they do."""

from __future__ import annotations

import ast
from functools import cache


@cache
def parsed(source: str, path: str) -> ast.Module:
    """The tree of a file with this text; the same one every time, so nobody alters it."""
    return ast.parse(source, path)


@cache
def nodes(source: str, path: str) -> tuple[ast.AST, ...]:
    """All nodes of that tree, as `ast.walk` has them."""
    return tuple(ast.walk(parsed(source, path)))
