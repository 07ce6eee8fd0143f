"""The sources that produce a run, bound into the package's manifest (docs/spec/evidence.md E4).

The build writes `run_sources.txt` beside this module, in the format of sha256sum: one line
`<sha256>  <path>` for evidence/runner.py and every file of this repository that it needs, in path
order. So a change elsewhere (the scheduler, a model that the block does not use) leaves the
evidence valid; `sha256sum --check` of the file verifies a tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

_FILE: Final = Path(__file__).with_name("run_sources.txt")


def parse_sources(lines: str) -> Mapping[str, str]:
    """From each path to its SHA-256, in path order."""
    pairs = (line.split("  ", 1) for line in lines.splitlines())
    return MappingProxyType({path: digest for digest, path in pairs})


RUN_SOURCES: Final = parse_sources(_FILE.read_text("ascii"))
