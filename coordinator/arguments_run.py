"""The command line of `run`: one flag per field of the manifest, and where the files go."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from coordinator.argument_parser import USAGE_CODE, StrictParser
from coordinator.options import CallContext, RunOptions
from errors import ConfigError, ConfigProblem
from manifest.fields import BLOCK, FAULT_KINDS, FAULT_PHASES
from manifest.run_manifest import RunManifest, from_flags
from manifest.text_form import TEXT_BYTES_MAX
from manifest.value_rules import shown

DEFAULT_OUT: Final = "out"

_DESCRIPTION: Final = """\
Runs the decoder block once over real worker processes and shows what happened.
Every default is recorded in manifest.json (docs/spec/manifest.md has the ranges)."""

_EXAMPLES: Final = """\
  coordinator run
  coordinator run --ranks 2 --batch 1 --sequence 4 --seed 3 --sum-order pairwise --json
  coordinator run --manifest run.textproto --out results
  coordinator run --ranks 2 --listen 127.0.0.1:7400 --external-workers"""

# Flag, field of the manifest, metavar, explanation.
_FIELD_FLAGS: Final = (
    ("--ranks", "ranks", "N", "worker processes: 1, 2 or 4 (default 4)"),
    ("--batch", "batch", "N", "operand rows (default 2)"),
    ("--sequence", "sequence", "N", "positions per row (default 7)"),
    ("--seed", "seed", "N", "seed of the generated tensors (default 1)"),
    ("--sum-order", "sum_order", "ORDER", "rank or pairwise (default rank)"),
    ("--epoch", "epoch", "N", "first epoch (default 1)"),
    ("--transport", "transport", "NAME", "unix or tcp (default unix, or that of --listen)"),
    ("--listen", "listen", "ADDRESS", "unix:PATH or HOST:PORT, loopback only"),
    ("--handshake-ms", "deadlines.handshake_ms", "MS", "all ranks connected (default 20000)"),
    ("--load-ms", "deadlines.load_ms", "MS", "one rank's load fence (default 20000)"),
    ("--phase-ms", "deadlines.phase_ms", "MS", "one rank's phase (default 10000)"),
    ("--send-ms", "deadlines.send_ms", "MS", "one frame written (default 5000)"),
    ("--close-ms", "deadlines.close_ms", "MS", "all workers ended (default 5000)"),
)

_FAULT_FLAGS: Final = (
    ("--fault", "fault.kind", "KIND", "plant a fault: " + ", ".join(FAULT_KINDS)),
    ("--fault-rank", "fault.rank", "R", "the rank that has it"),
    ("--fault-phase", "fault.phase", "PHASE", "where: " + ", ".join(FAULT_PHASES)),
)


def run_parser(context: CallContext) -> StrictParser:
    parser = StrictParser("coordinator run [OPTIONS]", _DESCRIPTION, _EXAMPLES)
    for flag, _, metavar, explanation in _FIELD_FLAGS:
        parser.option(flag, metavar, explanation)
    parser.switch("--external-workers", "wait on --listen for workers that someone else starts")
    parser.option("--manifest", "FILE", "a manifest in text form; flags must not contradict it")
    parser.option("--out", "DIR", f"folder for the run's files (default {DEFAULT_OUT})")
    parser.switch("--json", "one JSON object on standard output and nothing else")
    for flag, _, metavar, explanation in _FAULT_FLAGS:
        parser.option(flag, metavar, explanation if context.faults else argparse.SUPPRESS)
    return parser


def read_run(argv: Sequence[str], context: CallContext) -> RunOptions:
    """Raises ConfigError with every problem of the flags and of the manifest file together."""
    values, problems = run_parser(context).read(argv)
    typed = vars(values)
    flags = {
        path: typed[flag.removeprefix("--").replace("-", "_")]
        for flag, path, *_ in (*_FIELD_FLAGS, *_FAULT_FLAGS)
    }
    flags = {path: value for path, value in flags.items() if value is not None}
    if values.external_workers:
        flags["external_workers"] = "true"
    if flags.get("listen", "").startswith("unix:"):
        flags["listen"] = f"unix:{context.path(flags['listen'].removeprefix('unix:'))}"
    if values.out == "":
        problems.append(ConfigProblem("--out", shown(values.out), "must name a folder"))
    manifest = _manifest(flags, values.manifest, context, problems)
    out = context.path(values.out or DEFAULT_OUT)
    return RunOptions(manifest, out, values.json is True)


def _manifest(
    flags: dict[str, str],
    file: str | None,
    context: CallContext,
    problems: list[ConfigProblem],
) -> RunManifest:
    """The manifest; problems found earlier are reported together with those found here."""
    manifest = None
    code = USAGE_CODE
    try:
        text = None if file is None else _read_file(context.path(file))
        manifest = from_flags(flags, text, allow_fault=context.faults)
        if manifest.program != BLOCK:
            rule = "is not what run computes: it runs the block"
            problems.append(ConfigProblem("program", manifest.program, rule))
    except ConfigError as refused:
        code = USAGE_CODE if problems else refused.code
        problems.extend(refused.problems)
    if problems or manifest is None:
        raise ConfigError(problems, code)
    return manifest


def _read_file(path: Path) -> bytes:
    """At most one byte more than a manifest may have. Raises ConfigError."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError.single("--manifest", shown(path), "must be a regular file")
        with path.open("rb") as file:
            return file.read(TEXT_BYTES_MAX + 1)
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else str(failure)
        raise ConfigError.single("--manifest", shown(path), f"can't be read: {reason}") from None
