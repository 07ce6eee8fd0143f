"""Compiles modules to bytecode: compile_modules.py --cache-tag TAG [LABEL SOURCE OUTPUT]...

LABEL is the path that the bytecode names as its source until it is imported. The bytecode is of
the 'checked-hash' kind: the same bytes every time, and a source that has changed since is compiled
again instead of being run as it was.
"""

from __future__ import annotations

import py_compile
import sys


def main(argv: list[str]) -> int:
    """Writes one OUTPUT for each SOURCE."""
    option, tag, *files = argv
    if option != "--cache-tag" or tag != sys.implementation.cache_tag:
        print(f"{tag} is wanted, {sys.implementation.cache_tag} is here", file=sys.stderr)
        return 2
    for label, source, output in zip(files[::3], files[1::3], files[2::3], strict=True):
        py_compile.compile(
            source,
            output,
            dfile=label,
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
