"""The command line of `score`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.argument_parser import StrictParser
from coordinator.arguments_model import add_model_options, counted, model_manifest
from coordinator.model_options import ScoreOptions
from coordinator.options import CallContext
from coordinator.score_plans import TOP_DEFAULT
from errors import ConfigProblem
from manifest.value_rules import parse_integer, shown
from program.plan import TOP_MAX

_DESCRIPTION: Final = """\
Runs a list of tokens through a model, teacher-forced, and writes the log-probabilities of the most
likely next tokens after each position."""

_EXAMPLES: Final = """\
  coordinator score --tokens ids.json --top 64 --out scores.json
  coordinator score --checkpoint DIR --tp 4 --tokens ids.json --positions last:1
  coordinator score --tokens ids.json --prefill-tokens 16 --decode-from 100"""


def score_parser(context: CallContext) -> StrictParser:
    parser = StrictParser("coordinator score --tokens FILE [OPTIONS]", _DESCRIPTION, _EXAMPLES)
    parser.option("--tokens", "FILE", "a JSON list of token ids")
    most = f"1 to {TOP_MAX} (default {TOP_DEFAULT}, or the whole vocabulary)"
    parser.option("--top", "N", f"alternatives per position, {most}")
    parser.option("--positions", "WHICH", "all, or last:N (default all)")
    parser.option("--prefill-tokens", "N", "tokens per step (default: --max-step-tokens)")
    parser.option("--decode-from", "K", "from position K on, one token per step")
    parser.option("--out", "FILE", "where the result goes (default: standard output)")
    parser.option("--ledger", "DIR", "folder for the record of the run (default: none is kept)")
    add_model_options(parser, many_requests=False)
    return parser


def read_score(argv: Sequence[str], context: CallContext) -> ScoreOptions:
    """Raises ConfigError with every problem."""
    values, problems = score_parser(context).read(argv)
    if not values.tokens:
        problems.append(ConfigProblem("--tokens", "(not given)", "must name a JSON file"))
    top = counted("--top", values.top, 1, problems)
    if top is not None and top > TOP_MAX:
        problems.append(ConfigProblem("--top", str(top), f"must be at most {TOP_MAX}"))
    last = _last(values.positions, problems)
    chunk = counted("--prefill-tokens", values.prefill_tokens, 1, problems)
    decode_from = counted("--decode-from", values.decode_from, 0, problems)
    manifest = model_manifest(values, context, problems)
    return ScoreOptions(
        manifest=manifest,
        tokens=context.path(values.tokens),
        top=top,
        last=last,
        prefill_tokens=chunk,
        decode_from=decode_from,
        out=None if values.out is None else context.path(values.out),
        ledger=None if values.ledger is None else context.path(values.ledger),
    )


def _last(typed: str | None, problems: list[ConfigProblem]) -> int | None:
    if typed in (None, "all"):
        return None
    head, _, number = str(typed).partition(":")
    value = parse_integer(number)
    if head != "last" or value is None or value < 1:
        problems.append(ConfigProblem("--positions", shown(typed), "must be all or last:N"))
        return None
    return value
