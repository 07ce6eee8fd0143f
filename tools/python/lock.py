"""Writes requirements_lock.txt from requirements.in: every wheel pinned by version and by hash.

pip-compile resolves and hashes; this script then drops what `tokenizers` declares but never imports
(docs/adr/0003-dependencies.md, "the hub client"). It needs the network, so it is run by hand:

    python3.11 -m venv V && V/bin/pip install pip-tools && V/bin/python tools/python/lock.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# Declared by tokenizers for `Tokenizer.from_pretrained`, which we do not call.
ABSENT = frozenset({"huggingface-hub"})
HEADER = """\
# Written by tools/python/lock.py from requirements.in; do not edit.
"""
_ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==", re.MULTILINE)
_PARENT = re.compile(r"^    #(?: via)? +(?P<name>\S.*)$", re.MULTILINE)


def blocks(text: str) -> dict[str, str]:
    """Splits pip-compile's output into one block of text for each pinned package."""
    starts = [(match["name"], match.start()) for match in _ENTRY.finditer(text)]
    ends = [start for _, start in starts[1:]] + [len(text)]
    return {name: text[start:end] for (name, start), end in zip(starts, ends, strict=True)}


def parents(block: str) -> set[str]:
    """Names the packages (or the requirements file) that asked for this one."""
    return {match["name"] for match in _PARENT.finditer(block) if match["name"] != "via"}


def prune(pinned: dict[str, str], absent: frozenset[str] = ABSENT) -> dict[str, str]:
    """Drops every package that only absent packages, directly or not, ask for."""
    dropped = set(absent)
    while True:
        orphans = {name for name in pinned.keys() - dropped if parents(pinned[name]) <= dropped}
        if not orphans:
            break
        dropped |= orphans
    kept: dict[str, str] = {}
    for name in sorted(pinned.keys() - dropped):
        lines = pinned[name].splitlines()
        kept[name] = "\n".join(line for line in lines if line.startswith((name, "    "))) + "\n"
    return kept


def lock_file() -> Path:
    """The file that this script writes."""
    return Path(__file__).parents[2] / "requirements_lock.txt"


def main() -> int:
    """Resolves, prunes and writes the lock file beside requirements.in."""
    root = lock_file().parent
    command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--generate-hashes"]
    command += ["--no-emit-find-links", "--no-emit-index-url", "--no-emit-trusted-host"]
    command += ["--strip-extras", *(f"--unsafe-package={name}" for name in sorted(ABSENT))]
    command += ["--output-file=-", "requirements.in"]
    resolved = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    text = HEADER + "".join(prune(blocks(resolved.stdout)).values())
    lock_file().write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
