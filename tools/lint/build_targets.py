"""Reads the Python targets of BUILD files. BUILD files are Python to the parser."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

# Macros that add dependencies of their own.
_PYTEST = frozenset({"requirement:pytest"})
IMPLIED = {"pytest_test": _PYTEST, "browser_test": _PYTEST}


class UnreadableError(Exception):
    """An attribute is computed: the check can't know what it holds."""


@dataclass(frozen=True)
class Target:
    """One target with Python sources. Labels are absolute; a wheel is `requirement:NAME`."""

    label: str
    kind: str
    line: int
    # Paths from the repository root.
    sources: tuple[str, ...]
    deps: frozenset[str]
    implied: frozenset[str]
    # Folders on the import path besides the repository root.
    roots: tuple[str, ...]
    is_test: bool = False
    # Whether a second target runs the tests that are marked (tools/python/py.bzl).
    exhaustive: bool = False


def absolute(package: str, label: str) -> str:
    """`:x` and `//p` as `//p:x`; labels of other repositories as they are."""
    if label.startswith("@"):
        return label
    if not label.startswith("//"):
        return f"//{package}:{label.removeprefix(':')}"
    folder, colon, name = label.partition(":")
    return f"{folder}:{name if colon else folder.rsplit('/', 1)[-1]}"


def _items(node: ast.expr, names: Mapping[str, ast.expr]) -> Iterator[str]:
    """The strings of a list that is written out, named, or a sum of such lists."""
    match node:
        case ast.List():
            for element in node.elts:
                yield from _items(element, names)
        case ast.BinOp(op=ast.Add()):
            yield from _items(node.left, names)
            yield from _items(node.right, names)
        case ast.Name() if node.id in names:
            yield from _items(names[node.id], names)
        case ast.Constant(value=str(text)):
            yield text
        case ast.Call(func=ast.Name(id="requirement"), args=[ast.Constant(value=str(wheel))]):
            yield f"requirement:{wheel}"
        case _:
            raise UnreadableError(ast.unparse(node))


def _proto(package: str, name: str, line: int, source: str) -> Target:
    module = f"{package}/{source.removesuffix('.proto')}_pb2.py"
    return Target(
        absolute(package, name), "py_proto", line, (module,), frozenset(), frozenset(), ()
    )


def _target(
    package: str, call: ast.Call, kind: str, names: Mapping[str, ast.expr]
) -> Target | None:
    values = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}

    def items(attribute: str) -> tuple[str, ...]:
        node = values.get(attribute)
        return () if node is None else tuple(_items(node, names))

    def flag(attribute: str) -> bool:
        match values.get(attribute):
            case None:
                return False
            case ast.Constant(value=bool(value)):
                return value
            case node:
                raise UnreadableError(ast.unparse(node))

    if "name" not in values:
        return None
    (name,) = items("name")
    if kind == "py_proto":
        return _proto(package, name, call.lineno, *items("src"))
    if not kind.startswith(("browser_", "py_", "pytest_")) or kind == "py_dist":
        return None
    inside = (PurePosixPath(package, source.removeprefix(":")) for source in items("srcs"))
    return Target(
        label=absolute(package, name),
        kind=kind,
        line=call.lineno,
        sources=tuple(str(path) for path in inside),
        deps=frozenset(
            dep if dep.startswith("requirement:") else absolute(package, dep)
            for dep in items("deps")
        ),
        implied=IMPLIED.get(kind, frozenset()),
        roots=tuple(str(PurePosixPath(package, root)) for root in items("imports")),
        is_test=kind.endswith("_test") or "testonly" in values,
        exhaustive=flag("exhaustive"),
    )


def read(path: str, source: str) -> list[Target]:
    """The Python targets of the BUILD file at this path.

    Raises UnreadableError where sources or dependencies are computed.
    """
    package = "" if path == "BUILD.bazel" else str(PurePosixPath(path).parent)
    tree = ast.parse(source, path)
    names: dict[str, ast.expr] = {}
    targets: list[Target] = []
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]):
                names[name] = statement.value
            case ast.Expr(value=ast.Call(func=ast.Name(id=kind)) as call):
                target = _target(package, call, kind, names)
                if target is not None:
                    targets.append(target)
            case _:
                pass
    return targets


def sources_of_tests(targets: list[Target]) -> frozenset[str]:
    """The sources that no target has but tests and those marked testonly."""
    owners: dict[str, list[Target]] = {}
    for target in targets:
        for source in target.sources:
            owners.setdefault(source, []).append(target)
    return frozenset(
        source for source, having in owners.items() if all(target.is_test for target in having)
    )


def closure(targets: list[Target], roots: list[str]) -> frozenset[str]:
    """The written Python sources of these targets and of all that they depend on."""
    known = {target.label: target for target in targets}
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        label = waiting.pop()
        if label in seen or label not in known:
            continue
        seen.add(label)
        waiting += known[label].deps
    found = (target for label in seen if (target := known[label]).kind != "py_proto")
    return frozenset(source for target in found for source in target.sources)
