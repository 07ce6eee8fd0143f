"""The options that every model subcommand shares: which model, over how many ranks, how held."""

from __future__ import annotations

import argparse
from typing import Final

from coordinator.argument_parser import StrictParser
from coordinator.options import CallContext
from errors import ConfigError, ConfigProblem
from manifest.run_manifest import RunManifest, from_flags
from manifest.value_rules import parse_integer, shown

PROGRAMS: Final = {"sharded": "qwen35/sharded", "replicated": "qwen35/replicated"}

_MAX_BATCH: Final = "model.max_batch"
# Flag, field of the manifest, metavar, explanation.
_FIELD_FLAGS: Final = (
    ("--tp", "ranks", "N", "worker processes (default 2)"),
    ("--weights-dtype", "model.weights_dtype", "TYPE", "auto, float32 or bfloat16 (default auto)"),
    ("--compute", "model.compute_dtype", "TYPE", "float32, or float64 to diagnose"),
    ("--max-batch", _MAX_BATCH, "N", "requests at once (default 8)"),
    ("--max-step-tokens", "model.max_step_tokens", "N", "tokens per step (default 512)"),
    ("--page-tokens", "model.page_tokens", "N", "tokens per page (default 16)"),
    ("--device-ordinals", "model.device_ordinals", "0,1", "logical CPU device of each rank"),
    ("--execution", "model.execution", "NAME", "eager; captured is refused"),
    ("--rank-memory-bytes", "model.rank_memory_bytes", "N,N", "budget per rank, or one for all"),
    ("--sum-order", "sum_order", "ORDER", "rank or pairwise (default rank)"),
    ("--transport", "transport", "NAME", "unix or tcp (default unix)"),
    ("--handshake-ms", "deadlines.handshake_ms", "MS", "all ranks connected (default 20000)"),
    ("--load-ms", "deadlines.load_ms", "MS", "one rank's load (default 600000)"),
    ("--phase-ms", "deadlines.phase_ms", "MS", "one rank's phase (default 120000)"),
    ("--send-ms", "deadlines.send_ms", "MS", "one frame written (default 30000)"),
    ("--close-ms", "deadlines.close_ms", "MS", "all workers ended (default 5000)"),
)
# A model takes its time where the block does not.
_DEFAULTS: Final = {
    "ranks": "2",
    "deadlines.load_ms": "600000",
    "deadlines.phase_ms": "120000",
    "deadlines.send_ms": "30000",
}


def add_model_options(parser: StrictParser, *, many_requests: bool) -> None:
    """many_requests: whether the subcommand holds more than one request at once."""
    parser.option("--checkpoint", "DIR", "folder of the model (default: the embedded tiny one)")
    parser.option("--program", "NAME", "sharded or replicated linear attention (default sharded)")
    for flag, path, metavar, explanation in _FIELD_FLAGS:
        if many_requests or path != _MAX_BATCH:
            parser.option(flag, metavar, explanation)
    parser.switch("--check-weights", "refuse weights that hold NaN or infinity")


def model_manifest(
    values: argparse.Namespace, context: CallContext, problems: list[ConfigProblem]
) -> RunManifest:
    """The manifest of a model run. Raises ConfigError with `problems` and its own together."""
    typed = vars(values)
    flags = dict(_DEFAULTS)
    if "max_batch" not in typed:
        flags[_MAX_BATCH] = "1"
    for flag, path, *_ in _FIELD_FLAGS:
        value = typed.get(flag.removeprefix("--").replace("-", "_"))
        if value is not None:
            flags[path] = value
    if values.check_weights:
        flags["model.check_weights"] = "true"
    program = values.program or "sharded"
    if program not in PROGRAMS:
        rule = f"must be one of {', '.join(PROGRAMS)}"
        problems.append(ConfigProblem("--program", shown(program), rule))
    flags["program"] = PROGRAMS.get(program, PROGRAMS["sharded"])
    folder = context.model if values.checkpoint is None else context.path(values.checkpoint)
    if folder is None:
        rule = "must be given: this build carries no model"
        problems.append(ConfigProblem("--checkpoint", "(not given)", rule))
    flags["model.checkpoint"] = str(folder or "/")
    try:
        manifest = from_flags(flags)
    except ConfigError as refused:
        raise ConfigError([*problems, *refused.problems], refused.code) from None
    if problems:
        raise ConfigError(problems)
    return manifest


def token_list(flag: str, typed: str, problems: list[ConfigProblem]) -> tuple[int, ...]:
    """Token ids separated by commas; empty, and a problem, when they are not."""
    ids = [parse_integer(part) for part in typed.split(",")]
    if any(token is None or token < 0 for token in ids):
        rule = "must be token ids separated by commas"
        problems.append(ConfigProblem(flag, shown(typed), rule))
        return ()
    return tuple(token for token in ids if token is not None)


def counted(flag: str, typed: str | None, low: int, problems: list[ConfigProblem]) -> int | None:
    """An integer option of at least `low`; None when it is not given, or wrong (and a problem)."""
    if typed is None:
        return None
    value = parse_integer(typed)
    if value is None or not low <= value < 2**31:
        rule = f"must be an integer of at least {low}"
        problems.append(ConfigProblem(flag, shown(typed), rule))
        return None
    return value
