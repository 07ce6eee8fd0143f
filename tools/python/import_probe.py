"""Prints, as JSON, what this process, a child and a grandchild of it can import.

Children are started as a library would do it: with sys.executable and the inherited environment.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

GENERATIONS = 3


def report(names: list[str], generation: int) -> list[dict[str, list[str]]]:
    """One entry per process, from the given generation down: modules found, and sys.path."""
    found = [name for name in names if importlib.util.find_spec(name) is not None]
    reports = [{"found": found, "path": sys.path}]
    if generation < GENERATIONS:
        command = [sys.executable, __file__, str(generation + 1), *names]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        reports += json.loads(output)
    return reports


def main(argv: list[str]) -> int:
    """argv: the generation of this process, counted from 1, then module names."""
    json.dump(report(argv[1:], int(argv[0])), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
