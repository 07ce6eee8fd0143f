"""Verifies an evidence package with nothing but Python's standard library.

    python3 -I -S verifier/independent --evidence testdata/evidence
        [--source ROOT] [--json] [--case ID ...]

It shares no code with the program that made the package and was written from docs/spec alone. Exit
code: 0 where everything holds, 1 with findings, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import verdict
from verify import verify

EXIT_OK, EXIT_FINDINGS, EXIT_USAGE = 0, 1, 2


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="verifier/independent", description="Verifies an evidence package.", allow_abbrev=False
    )
    parser.add_argument("--evidence", type=Path, required=True, help="directory of the package")
    parser.add_argument("--source", type=Path, help="root of the source tree, to compare its files")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--case", nargs="+", default=[], metavar="ID", help="check only these cases"
    )
    options = parser.parse_args(arguments)
    for option, directory in (("--evidence", options.evidence), ("--source", options.source)):
        if directory is not None and not directory.is_dir():
            print(f"{option} {str(directory)!r} is not a directory", file=sys.stderr)
            return EXIT_USAGE
    try:
        result = verify(options.evidence, source=options.source, only=options.case)
    except ValueError as error:
        print(f"--case: {error}", file=sys.stderr)
        return EXIT_USAGE
    print(verdict.as_json(result) if options.json else "\n".join(verdict.as_text(result)))
    return EXIT_OK if result.ok else EXIT_FINDINGS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
