"""The coordinator's composition root: command line in, exit code out.

The only module that knows where the worker's program is, who the oracle is and what the
environment says. Exit codes: docs in coordinator/arguments.py.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType

from coordinator.arguments import call_directory, parse_arguments
from coordinator.command_run import RunBindings, Verdict, run
from coordinator.ledger_view import show_ledger
from coordinator.options import (
    CallContext,
    HelpRequest,
    LedgerOptions,
    Options,
    ReplayOptions,
    RunOptions,
    VersionRequest,
)
from coordinator.processes import ExecLauncher, Launcher
from coordinator.replay import show_replay
from coordinator.replay_process import worker_process
from coordinator.report import render_json, render_refusal_json, render_report
from coordinator.summary import OracleErrors
from coordinator.terminal import style_for
from coordinator.worker_program import (
    faulty_worker_exists,
    faulty_worker_program,
    worker_program,
)
from errors import TPError
from identity.source import SOURCE_DIGEST
from manifest.run_manifest import RunManifest, from_flags
from oracle.block import ALARM, MAX_ABS_GATE, RELATIVE_L2_GATE, judge
from program.block import ARITHMETIC
from wire.link import Pipe

INTERRUPTED = 128 + signal.SIGINT


class _TerminatedError(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt it unwinds everything that must be put away."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _TerminatedError


def _judge(output: bytes, manifest: RunManifest) -> Verdict:
    """The float64 reference's word on an output (docs/spec/evidence.md E7)."""
    judgement = judge(output, manifest.seed, manifest.batch, manifest.sequence)
    errors = OracleErrors(judgement.max_abs_error, judgement.relative_l2_error)
    failure = None
    if not judgement.passed or judgement.alarm:
        failure = TPError(
            "oracle.gate",
            f"the output is {errors.max_abs:.3e} (relative L2 {errors.relative_l2:.3e}) from the "
            f"float64 reference; gates {MAX_ABS_GATE} and {RELATIVE_L2_GATE}, alarm {ALARM}",
        )
    return Verdict(errors, failure)


def _launcher(manifest: RunManifest) -> Launcher:
    fault = manifest.fault
    if fault is None:
        program = worker_program()
        return ExecLauncher(program.argv, program.env)
    program = faulty_worker_program()
    extra = ("--fault", fault.kind, "--fault-rank", str(fault.rank), "--fault-phase", fault.phase)
    return ExecLauncher(program.argv, program.env, (*extra, "--ranks", str(manifest.ranks)))


def _run(options: RunOptions, environment: Mapping[str, str]) -> int:
    manifest = options.manifest.with_identities(SOURCE_DIGEST, ARITHMETIC)
    checked = RunOptions(manifest, options.out, options.json)
    report = run(checked, RunBindings(_launcher, _judge))
    if options.json:
        sys.stdout.write(render_json(report.summary))
    else:
        style = style_for(sys.stdout.isatty(), environment)
        sys.stdout.write(render_report(report.summary, style))
    return report.exit_code


def _replay(options: ReplayOptions, environment: Mapping[str, str]) -> int:
    defaults = from_flags({})
    launcher = _launcher(defaults)

    def open_worker(rank: int) -> AbstractContextManager[Pipe]:
        return worker_process(launcher, defaults.deadlines, rank)

    style = style_for(sys.stdout.isatty(), environment)
    return show_replay(options, open_worker, sys.stdout, style)


def _dispatch(options: Options, environment: Mapping[str, str]) -> int:
    match options:
        case HelpRequest(text):
            sys.stdout.write(text)
            return 0
        case VersionRequest():
            sys.stdout.write(f"coordinator {SOURCE_DIGEST}\n")
            return 0
        case RunOptions():
            return _run(options, environment)
        case LedgerOptions():
            return show_ledger(options, sys.stdout, style_for(sys.stdout.isatty(), environment))
        case ReplayOptions():
            return _replay(options, environment)


def main(argv: Sequence[str]) -> int:
    """Returns the exit code; results go to standard output, everything else to standard error."""
    signal.signal(signal.SIGTERM, _terminate)
    environment = os.environ
    directory = call_directory(environment, Path.cwd())
    try:
        options = parse_arguments(argv, CallContext(directory, faults=faulty_worker_exists()))
        return _dispatch(options, environment)
    except TPError as failure:
        if "--json" in argv:
            sys.stdout.write(render_refusal_json(failure))
        print(f"coordinator: {failure.diagnostics()}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        print("coordinator: interrupted; nothing is left running", file=sys.stderr)
        return INTERRUPTED
    except _TerminatedError:
        return 128 + signal.SIGTERM


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
