"""Which sources this program was built from (docs/spec/evidence.md, E4).

The build writes `source_files.txt` beside this module, in the format of sha256sum: one line
`<sha256>  <path>` for each source file that decides what a run computes, in path order. Paths are
relative to the repository root, so `sha256sum --check identity/source_files.txt` verifies a tree.

SOURCE_DIGEST  SHA-256 of that file, in lower-case hexadecimal
SOURCE_FILES   from each path to its SHA-256, in path order
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_LINES = Path(__file__).with_name("source_files.txt").read_bytes()


def _parse(lines: bytes) -> Mapping[str, str]:
    pairs = (line.split("  ", 1) for line in lines.decode("ascii").splitlines())
    return MappingProxyType({path: digest for digest, path in pairs})


SOURCE_DIGEST = hashlib.sha256(_LINES).hexdigest()
SOURCE_FILES = _parse(_LINES)
