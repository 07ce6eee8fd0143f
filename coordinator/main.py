"""The coordinator's composition root: command line in, exit code out.

The only module that knows where the worker's program is, who the oracle is and what the
environment says. Exit codes: docs in coordinator/arguments.py.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, TextIO

from coordinator.arguments import call_directory, parse_arguments
from coordinator.command_run import RunBindings, Verdict, run
from coordinator.command_serve import serve
from coordinator.command_state import show_state
from coordinator.interruption import Interruption, interruptible
from coordinator.ledger_view import show_ledger
from coordinator.machine import visible_machine
from coordinator.model_command import run_model_command, watch_for
from coordinator.model_options import GenerateOptions, PlanOptions, ScoreOptions
from coordinator.model_run import ModelBindings
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
from coordinator.report import render_failure, render_json, render_refusal_json, render_report
from coordinator.service_options import ServeOptions, StateOptions
from coordinator.summary import OracleErrors
from coordinator.terminal import style_for
from coordinator.worker_program import (
    embedded_model,
    faulty_worker_exists,
    faulty_worker_program,
    worker_program,
)
from errors import ConfigError, TPError
from identity.source import SOURCE_DIGEST
from manifest.run_manifest import RunManifest, from_flags
from oracle.block import ALARM, MAX_ABS_GATE, RELATIVE_L2_GATE, judge
from program.block import ARITHMETIC
from wire.link import Pipe

# The socket listens before a worker is started, so a worker that cannot connect at once has lost
# its coordinator, which it must not outlive by more than 5 s (docs/spec/session.md S2).
CONNECT_MS: Final = 2_000
_STDOUT_CLOSED: Final = 128 + signal.SIGPIPE


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
    extra: tuple[str, ...] = ("--connect-ms", str(CONNECT_MS))
    if fault is None:
        program = worker_program()
        return ExecLauncher(program.argv, program.env, extra)
    program = faulty_worker_program()
    extra += ("--fault", fault.kind, "--fault-rank", str(fault.rank))
    extra += ("--fault-phase", fault.phase, "--ranks", str(manifest.ranks))
    return ExecLauncher(program.argv, program.env, extra)


def _run(options: RunOptions, environment: Mapping[str, str], page: TextIO) -> int:
    manifest = options.manifest.with_identities(SOURCE_DIGEST, ARITHMETIC)

    def waiting(address: str) -> None:
        seconds = manifest.deadlines.handshake_ms / 1000
        _tell(f"waiting up to {seconds:g} s for {manifest.ranks} workers at {address}")

    checked = RunOptions(manifest, options.out, options.json)
    report = run(checked, RunBindings(_launcher, _judge, waiting))
    if options.json:
        page.write(render_json(report.summary))
        with contextlib.suppress(OSError):
            sys.stderr.write(render_failure(report.summary))
    else:
        style = style_for(sys.stdout.isatty(), environment)
        page.write(render_report(report.summary, style))
    return report.exit_code


def _replay(options: ReplayOptions, environment: Mapping[str, str], page: TextIO) -> int:
    defaults = from_flags({})

    def open_worker(rank: int) -> AbstractContextManager[Pipe]:
        return worker_process(_launcher(defaults), defaults.deadlines, rank)

    style = style_for(sys.stdout.isatty(), environment)
    return show_replay(options, open_worker, page, style)


def _serve(options: ServeOptions, environment: Mapping[str, str]) -> int:
    watch = watch_for(sys.stderr, environment)
    bindings = ModelBindings(_launcher, visible_machine, watch, SOURCE_DIGEST)
    if options.http is None:
        return serve(options, bindings, sys.stderr)
    # Nothing else needs a web server, and nothing else should wait for its import.
    from coordinator.serving.command import serve_http

    return serve_http(options, bindings, sys.stderr)


def _dispatch(options: Options, environment: Mapping[str, str], page: TextIO) -> int:
    match options:
        case HelpRequest(text):
            page.write(text)
            return 0
        case VersionRequest():
            page.write(f"coordinator {SOURCE_DIGEST}\n")
            return 0
        case RunOptions():
            return _run(options, environment, page)
        case LedgerOptions():
            return show_ledger(options, page, style_for(sys.stdout.isatty(), environment))
        case ReplayOptions():
            return _replay(options, environment, page)
        case PlanOptions() | ScoreOptions() | GenerateOptions():
            watch = watch_for(sys.stderr, environment)
            bindings = ModelBindings(_launcher, visible_machine, watch, SOURCE_DIGEST)
            return run_model_command(options, bindings, page)
        case ServeOptions():
            return _serve(options, environment)
        case StateOptions():
            page.write(show_state(options))
            return 0


def _tell(sentence: str) -> None:
    """One line on standard error; where that can't be written the exit code has to do."""
    with contextlib.suppress(OSError):
        print(f"coordinator: {sentence}", file=sys.stderr, flush=True)


def open_standard_streams() -> None:
    """Fills the places of standard streams that the caller closed.

    A socket of ours would get such a number otherwise. What can't be said is lost with the stream,
    but results are not lost silently: writing to such a standard output fails.
    """
    for descriptor, access in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, access)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError as failure:
        rule = f"can't be used: {failure.strerror}"
        raise ConfigError.single("working directory", ".", rule) from None


def _write_out(page: str) -> int:
    """To standard output, whole; returns 0, or the exit code that says why not."""
    if not page:
        # Even that can't be written to a full one, and nothing is lost.
        return 0
    try:
        sys.stdout.write(page)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough, as `head` does.
        code = _STDOUT_CLOSED
    except OSError as failure:
        _tell(f"can't write standard output: {failure.strerror}")
        code = TPError.exit_code
    else:
        return 0
    # Nothing is left for the interpreter to try again at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def main(argv: Sequence[str]) -> int:
    """Returns the exit code; results go to standard output, everything else to standard error."""
    environment = os.environ
    page = io.StringIO()
    failure: TPError | None = None
    try:
        with interruptible():
            directory = call_directory(environment, _working_directory())
            context = CallContext(directory, faulty_worker_exists(), embedded_model())
            options = parse_arguments(argv, context)
            code = _dispatch(options, environment, page)
    except TPError as refusal:
        failure, code = refusal, refusal.exit_code
    except Interruption as stop:
        failure = TPError("run.interrupted", f"stopped by {stop}; nothing is left running")
        code = stop.exit_code
    if failure is not None:
        page = io.StringIO(render_refusal_json(failure) if "--json" in argv else "")
        _tell(failure.diagnostics())
    written = _write_out(page.getvalue())
    return code or written
