"""The evidence's command line: build the package or some of its cases, and compare packages.

    evidence build --out DIR [--replace] [--only CASE_ID ...] [--jobs N] [--timings]
    evidence compare LEFT RIGHT
    evidence list

`build` with all cases writes a whole package; with --only it writes the files of those cases.
--replace: DIR may hold a package, which the new one takes the place of once it is complete.
Exit codes: 0 done, 1 a case did not end as it must, or packages differ; 2 usage; 130 interrupted.
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
from evidence.compare import explain
from evidence.matrix import all_cases, select
from evidence.package import case_files, package_files, read_package, write_package
from evidence.pool import run_cases
from evidence.run_sources import RUN_SOURCES
from evidence.timings import timing_table

# Most of a case is waiting for other processes, so more jobs than cores keep the cores busy.
JOBS = 8
JOBS_MAX = 64
DIFFERENT = 1
INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError.single("command line", self.prog, message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="evidence", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", allow_abbrev=False, help="run cases, write their files")
    build.add_argument("--out", required=True, type=Path, metavar="DIR")
    build.add_argument("--replace", action="store_true", help="replace the package in DIR")
    build.add_argument("--only", nargs="+", default=[], metavar="CASE_ID")
    build.add_argument("--jobs", type=int, default=JOBS, metavar="N")
    build.add_argument("--timings", action="store_true", help="print how long the cases took")
    compare = commands.add_parser("compare", allow_abbrev=False, help="explain differences")
    compare.add_argument("left", type=Path, metavar="LEFT")
    compare.add_argument("right", type=Path, metavar="RIGHT")
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


def _build(out: Path, options: argparse.Namespace) -> None:
    if not 1 <= options.jobs <= JOBS_MAX:
        raise ConfigError.single("--jobs", options.jobs, f"must be 1 to {JOBS_MAX}")
    if options.only and options.replace:
        raise ConfigError.single("--replace", "with --only", "is for a whole package")
    cases = select(options.only)
    started = time.monotonic()
    finished = run_cases(cases, options.jobs, _show_progress)
    elapsed = time.monotonic() - started
    runs = [each.run for each in finished]
    if options.only:
        files = {path: data for run in runs for path, data in case_files(run).items()}
    else:
        files = package_files(runs, RUN_SOURCES)
    write_package(out, files, replace=options.replace)
    if options.timings:
        print(timing_table(finished))
    size = sum(map(len, files.values()))
    print(f"{len(runs)} cases, {len(files)} files, {size} bytes in {out}, {elapsed:.1f} s")


def _compare(left: Path, right: Path) -> int:
    explained = explain(read_package(left), read_package(right))
    print(explained or "the same bytes")
    return DIFFERENT if explained else 0


def _run(options: argparse.Namespace) -> int:
    base = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    if options.command == "list":
        print("\n".join(case.case_id for case in all_cases()))
    elif options.command == "compare":
        return _compare(base / options.left, base / options.right)
    else:
        _build(base / options.out, options)
    return 0


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    try:
        return _run(_parser().parse_args(argv))
    except TPError as failure:
        print(failure.diagnostics(), file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
