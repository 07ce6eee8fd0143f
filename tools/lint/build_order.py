"""Checks the order of things in a BUILD file: loads, arguments, lists."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.lint.finding import Finding

# As the usual formatter orders arguments: these first, those last, the rest by name between them.
FIRST = ("name", "size", "timeout", "testonly", "src", "srcs", "out", "outs")
LAST = ("destdir", "exports", "runtime_deps", "deps")
SORTED_LISTS = ("data", "deps", "srcs", "tags", "tools", "visibility")


def argument_key(name: str) -> tuple[int, str]:
    """Sort key of a keyword argument."""
    if name in FIRST:
        return FIRST.index(name) - len(FIRST), ""
    if name in LAST:
        return LAST.index(name) + 1, ""
    return 0, name


def label_key(label: str) -> tuple[int, list[str]]:
    """Sort key of a label in a list: files, then this package, this repository, others."""
    phase = 0
    for number, prefix in enumerate((":", "//", "@"), start=1):
        if label.startswith(prefix):
            phase = number
    return phase, label.replace(":", ".").split(".")


def load_key(label: str) -> tuple[int, str]:
    """Sort key of a loaded file: other repositories, this one, this package."""
    if label.startswith("@"):
        return 0, label
    return (1 if label.startswith("//") else 2), label


def _strings(nodes: list[ast.expr]) -> list[str]:
    values = (node.value for node in nodes if isinstance(node, ast.Constant))
    return [value for value in values if isinstance(value, str)]


def _loads(path: str, tree: ast.Module) -> Iterator[Finding]:
    labels: list[str] = []
    loaded: dict[str, int] = {}
    started = False
    for statement in tree.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "load":
            started = started or not isinstance(call, ast.Constant)
            continue
        if started:
            yield Finding(path, call.lineno, "build-loads", "loads come first")
        label, *symbols = _strings(call.args)
        labels.append(label)
        loaded |= dict.fromkeys(symbols, call.lineno)
        loaded |= {keyword.arg: call.lineno for keyword in call.keywords if keyword.arg}
        if symbols != sorted(symbols):
            yield Finding(path, call.lineno, "build-loads", "loaded names are sorted")
    if labels != sorted(labels, key=load_key):
        yield Finding(path, 1, "build-loads", "loads are sorted: @..., //..., :...")
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for symbol, line in loaded.items():
        if symbol not in used:
            yield Finding(path, line, "build-loads", f"{symbol} is loaded and not used")


def _list(path: str, name: str, value: ast.List) -> Iterator[Finding]:
    labels = _strings(value.elts)
    calls = [ast.unparse(node) for node in value.elts if isinstance(node, ast.Call)]
    kinds = [isinstance(node, ast.Call) for node in value.elts]
    if len(set(labels)) + len(set(calls)) < len(labels) + len(calls):
        yield Finding(path, value.lineno, "build-order", f"{name} names something twice")
    if labels != sorted(labels, key=label_key) or calls != sorted(calls) or kinds != sorted(kinds):
        yield Finding(path, value.lineno, "build-order", f"{name} is sorted: labels, then calls")


def _call(path: str, call: ast.Call) -> Iterator[Finding]:
    names = [keyword.arg for keyword in call.keywords if keyword.arg]
    if names != sorted(names, key=argument_key):
        wanted = ", ".join(sorted(names, key=argument_key))
        yield Finding(path, call.lineno, "build-order", f"arguments in the order {wanted}")
    if len(call.keywords) > 1 and call.end_lineno == call.lineno:
        yield Finding(path, call.lineno, "build-order", "one argument on each line")
    for keyword in call.keywords:
        for node in ast.walk(keyword.value):
            if not isinstance(node, ast.List):
                continue
            if keyword.arg in SORTED_LISTS:
                yield from _list(path, keyword.arg, node)
            if len(node.elts) > 1 and node.lineno == node.end_lineno:
                yield Finding(path, node.lineno, "build-order", "one element on each line")


def check(path: str, source: str) -> Iterator[Finding]:
    """Everything in this BUILD or .bzl file that is out of order.

    In .bzl files only loads have an order: arguments there follow the sense of the code.
    """
    tree = ast.parse(source, path)
    yield from _loads(path, tree)
    if path.endswith(".bzl"):
        return
    for statement in tree.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) != "load":
            yield from _call(path, call)
