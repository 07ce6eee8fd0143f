"""Checks that each target declares exactly what its sources import.

Bazel's Python rules let a module import anything that happens to be among the runfiles: without
this check a dependency could be missing, and the visibility rules would not see it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from tools.lint.build_targets import Target
from tools.lint.finding import Finding
from tools.lint.parsed import parsed

# From the top-level module to the wheel that provides it.
WHEELS = {
    "google": "protobuf",
    "h11": "h11",
    "httpx2": "httpx2",
    "hypothesis": "hypothesis",
    "jinja2": "jinja2",
    "mypy": "mypy",
    "numpy": "numpy",
    "openai": "openai",
    "prometheus_client": "prometheus-client",
    "pytest": "pytest",
    "runfiles": "bazel-runfiles",
    "starlette": "starlette",
    "tokenizers": "tokenizers",
    "uvicorn": "uvicorn",
    "websockets": "websockets",
}

# Run by hand, with libraries that the build does not have.
NOT_BUILT = ("tools/golden/", "tools/tiny_model/")
# Added to targets by macros.
OF_MACROS = frozenset({"tools/pack/archive_test.py", "tools/python/pytest_main.py"})


@dataclass(frozen=True)
class Workspace:
    """All targets, and which of them provide a module."""

    targets: Mapping[str, Target]
    providers: Mapping[str, frozenset[str]]

    def sources_of(self, label: str) -> tuple[str, ...]:
        """The sources of a target; none for one that is not of Python."""
        return self.targets[label].sources if label in self.targets else ()


def module_names(target: Target, source: str) -> Iterator[str]:
    """The dotted names by which this source can be imported."""
    path = PurePosixPath(source)
    stem = path.parent if path.name == "__init__.py" else path.with_suffix("")
    yield ".".join(stem.parts)
    for root in target.roots:
        if stem.is_relative_to(root):
            yield ".".join(stem.relative_to(root).parts)


def workspace(targets: list[Target]) -> Workspace:
    """Indexes the targets by the modules that they provide."""
    providers: dict[str, frozenset[str]] = {}
    for target in targets:
        for source in target.sources:
            for module in module_names(target, source):
                providers[module] = providers.get(module, frozenset()) | {target.label}
    return Workspace({target.label: target for target in targets}, providers)


def _needed(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Each import with its line, as (module, module.name), but for those of type checkers alone."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            skipped |= {inner for part in node.body for inner in ast.walk(part)}
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.lineno, node.module, f"{node.module}.{alias.name}"


def _provided(module: str, full: str, providers: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The labels or wheels of which one must be declared; empty for the standard library."""
    for name in (full, module):
        if name in providers:
            return providers[name]
    top = module.split(".")[0]
    if top in WHEELS:
        return frozenset({f"requirement:{WHEELS[top]}"})
    if top in sys.stdlib_module_names or top == "__future__":
        return frozenset()
    return frozenset({f"a target that provides {module}"})


def check_target(
    build_file: str, target: Target, sources: Mapping[str, str], known: Workspace
) -> Iterator[Finding]:
    """Compares the imports of one target's sources with its dependencies."""
    used: set[str] = set()
    for path in target.sources:
        # A program over a library of the same source has what that library has.
        same = {dep for dep in target.deps if path in known.sources_of(dep)}
        used |= same
        if same:
            continue
        for line, module, full in _needed(parsed(sources.get(path, ""), path)):
            wanted = _provided(module, full, known.providers)
            if not wanted or target.label in wanted:
                continue
            declared = wanted & (target.deps | target.implied)
            used |= declared
            if not declared:
                text = f"{target.label} imports {module} but does not depend on {min(wanted)}"
                yield Finding(path, line, "build-deps", text)
    for dep in sorted(target.deps - used):
        # A library without Python sources is there for its data.
        provides = dep.startswith("requirement:") or known.sources_of(dep)
        if provides and target.sources:
            text = f"{target.label} depends on {dep} and does not import it"
            yield Finding(build_file, target.line, "build-deps", text)


def check(targets: Mapping[str, list[Target]], sources: Mapping[str, str]) -> Iterator[Finding]:
    """Every undeclared or unused dependency, and every source that no target has.

    targets: by BUILD file. sources: the text of each Python file, by path.
    """
    known = workspace([target for listed in targets.values() for target in listed])
    owned: set[str] = set()
    for build_file, listed in targets.items():
        for target in listed:
            owned.update(target.sources)
            yield from check_target(build_file, target, sources, known)
    for path in sources:
        if path not in owned | OF_MACROS and not path.startswith(NOT_BUILT):
            yield Finding(path, 0, "build-deps", "no target has this file among its sources")
