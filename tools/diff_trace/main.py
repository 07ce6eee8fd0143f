"""Where two runs first differ.

    diff_trace A B              two runs: a run's folder, a ledger, a step trace or a flight file
    diff_trace A --ranks 0 1    two ranks of one run

Exit codes: 0 the same, 1 they differ, 2 an input that can't be compared.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, TextIO

from errors import ConfigError, TPError
from manifest.value_rules import shown
from tools.diff_trace.compare import Comparison, Difference, compare_ranks, compare_runs
from tools.diff_trace.frames import TracedFrame, read_frames
from wire.limits import RANK_MAX

SAME: Final = 0
DIFFERENT: Final = 1
_SHOWN_MAX: Final = 400


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError.single("command line", self.prog, message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="diff_trace", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("left", metavar="A", help="folder or file of the first run")
    parser.add_argument("right", metavar="B", nargs="?", help="of the second")
    parser.add_argument("--ranks", nargs=2, metavar=("R", "S"), help="two ranks of A instead")
    return parser


def diff_trace(argv: Sequence[str], directory: Path, output: TextIO) -> int:
    """Writes the verdict; returns the exit code. Raises ConfigError for what can't be compared.

    directory: what relative paths are relative to.
    """
    options = _parser().parse_args(argv)
    if (options.right is None) == (options.ranks is None):
        rule = "give a second run or --ranks, and not both"
        raise ConfigError.single("command line", "diff_trace", rule)
    left = read_frames(directory / options.left)
    if options.ranks is not None:
        first, second = (_rank(text) for text in options.ranks)
        if first == second:
            raise ConfigError.single("--ranks", first, "must be two different ranks")
        names = (f"rank {first}", f"rank {second}")
        found = compare_ranks(left, (first, second))
    else:
        names = ("A", "B")
        found = compare_runs(left, read_frames(directory / options.right))
    output.write(render(found, names))
    return SAME if found.difference is None else DIFFERENT


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= RANK_MAX):
        raise ConfigError.single("--ranks", shown(text), f"must be 0 to {RANK_MAX}")
    return int(text)


def render(found: Comparison, names: tuple[str, str]) -> str:
    """The verdict in a line; where they differ, the frame, the field and both values too."""
    difference = found.difference
    if difference is None:
        return f"the same: {found.frames} frames\n"
    width = max(map(len, names))
    values = (difference.what.taped, difference.what.replayed)
    lines = [f"first difference at {_where(difference)}: {difference.what.field}"]
    lines += [
        f"  {name:<{width}}  {value[:_SHOWN_MAX]}"
        for name, value in zip(names, values, strict=True)
    ]
    return "\n".join(lines) + "\n"


def _where(difference: Difference) -> str:
    sides = [frame for frame in (difference.left, difference.right) if frame is not None]
    places = dict.fromkeys(_place(frame) for frame in sides)
    entry = sides[0].entry
    what = f"{entry.direction} {entry.kind or 'nothing'}, rank {entry.rank}, phase {entry.phase}"
    return f"{' and '.join(places)} ({shown(what)})"


def _place(frame: TracedFrame) -> str:
    group = f"group {frame.group}, " if frame.group else ""
    step = "" if frame.step is None else f"step {frame.step}, "
    return f"{group}{step}frame {frame.entry.index}"


def main(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Returns the exit code; a refusal is one sentence on standard error."""
    directory = Path(environment.get("BUILD_WORKING_DIRECTORY", "."))
    try:
        return diff_trace(argv, directory, sys.stdout)
    except TPError as refusal:
        print(f"diff_trace: {refusal.diagnostics()}", file=sys.stderr)
        return ConfigError.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
