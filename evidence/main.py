"""The evidence's command line: build the package, or some of its cases.

    evidence build --out DIR [--only CASE_ID ...] [--jobs N]
    evidence list

`build` with all cases writes a whole package; with --only it writes the files of those cases.
Exit codes: 0 done, 1 a case did not end as it must, 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from errors import ConfigError, TPError
from evidence.matrix import all_cases, select
from evidence.package import case_files, package_files, write_package
from evidence.pool import run_cases
from identity.source import SOURCE_FILES

# Most of a case is waiting for other processes, so more jobs than cores keep the cores busy.
JOBS = 8
JOBS_MAX = 64
INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError.single("command line", self.prog, message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="evidence", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", allow_abbrev=False, help="run cases, write their files")
    build.add_argument("--out", required=True, metavar="DIR")
    build.add_argument("--only", nargs="+", default=[], metavar="CASE_ID")
    build.add_argument("--jobs", type=int, default=JOBS, metavar="N")
    commands.add_parser("list", allow_abbrev=False, help="print the 288 case ids")
    return parser


def _show_progress(done: int, total: int, case_id: str) -> None:
    if sys.stderr.isatty():
        filled = 40 * done // total
        bar = "#" * filled + "." * (40 - filled)
        end = "\n" if done == total else ""
        print(f"\r[{bar}] {done}/{total} {case_id:<48.48}", end=end, file=sys.stderr, flush=True)
    elif done % 48 == 0 or done == total:
        print(f"{done}/{total} cases", file=sys.stderr, flush=True)


def _build(out: Path, only: list[str], jobs: int) -> None:
    if not 1 <= jobs <= JOBS_MAX:
        raise ConfigError.single("--jobs", jobs, f"must be 1 to {JOBS_MAX}")
    cases = select(only)
    started = time.monotonic()
    runs = run_cases(cases, jobs, _show_progress)
    if only:
        files = {path: data for run in runs for path, data in case_files(run).items()}
    else:
        files = package_files(runs, SOURCE_FILES)
    write_package(out, files)
    size = sum(map(len, files.values()))
    print(
        f"{len(runs)} cases, {len(files)} files, {size} bytes in {out}, "
        f"{time.monotonic() - started:.1f} s"
    )


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    try:
        options = _parser().parse_args(argv)
        if options.command == "list":
            print("\n".join(case.case_id for case in all_cases()))
            return 0
        base = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
        _build(base / options.out, options.only, options.jobs)
    except TPError as failure:
        print(failure.diagnostics(), file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
