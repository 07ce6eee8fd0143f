"""The independent verifier, loaded as it is run: its folder on the path, its modules by bare names.

It shares no import with anything here; only its findings' codes are looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

# Relative to the repository, or to the runfiles of a test.
FOLDER = Path("verifier/independent")


def _module() -> Any:
    folder = str(FOLDER.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return import_module("verify")


def checks() -> tuple[str, ...]:
    """The codes of all its checks."""
    return tuple(_module().CODES)


def case_checks() -> frozenset[str]:
    """The codes of the checks that look at one case alone."""
    return frozenset(_module().CASE_CHECKS) - frozenset(_module().PACKAGE_CHECKS)


def findings(
    package: Path, *, only: Collection[str] = (), disabled: Collection[str] = ()
) -> set[str]:
    """The codes of what it finds."""
    verdict = _module().verify(package, only=sorted(only), disabled=frozenset(disabled))
    return {finding.code for finding in verdict.findings}
