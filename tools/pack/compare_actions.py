"""Compares what every action of two builds wrote: compare_actions.py FIRST.log SECOND.log

The logs are those of Bazel's --execution_log_json_file: JSON objects, one after the other.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SHOWN_MAX = 50


def outputs(log: str) -> dict[str, str]:
    """From each output path to the digest of its bytes."""
    decoder = json.JSONDecoder()
    digests: dict[str, str] = {}
    position = 0
    while position < len(log):
        spawn, position = decoder.raw_decode(log, position)
        digests |= {file["path"]: file["digest"]["hash"] for file in spawn.get("actualOutputs", [])}
        while position < len(log) and log[position].isspace():
            position += 1
    return digests


def differences(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """The outputs that only one build has, or that differ."""
    return sorted(path for path in first | second if first.get(path) != second.get(path))


def main(argv: list[str]) -> int:
    """Returns 0 when both builds wrote the same, and wrote anything."""
    first, second = (outputs(Path(name).read_text(encoding="utf-8")) for name in argv)
    different = differences(first, second)
    for path in different[:SHOWN_MAX]:
        print(f"differs: {path} {first.get(path)} {second.get(path)}")
    print(f"{len(first)} outputs compared, {len(different)} differ")
    return 1 if different or not first else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
