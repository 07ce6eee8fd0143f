"""The command line of `generate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from coordinator.argument_parser import StrictParser
from coordinator.arguments_model import add_model_options, model_manifest, token_list
from coordinator.model_options import GenerateOptions
from coordinator.options import CallContext
from errors import ConfigProblem
from manifest.value_rules import parse_integer, shown

MAX_TOKENS: Final = 64

_DESCRIPTION: Final = """\
Continues a prompt. Without a checkpoint the embedded tiny model writes; it needs no download."""

_EXAMPLES: Final = """\
  coordinator generate --prompt "Return the"
  coordinator generate --prompt "The" --tp 4 --temperature 0.8 --seed 7 --json
  coordinator generate --checkpoint DIR --prompt-tokens 1,2,3 --max-tokens 16"""

# Flag, parameter of the request, explanation. Integers first, then real numbers.
_INTEGERS: Final = (
    ("--max-tokens", "max_tokens", f"tokens to write (default {MAX_TOKENS})"),
    ("--seed", "seed", "key of the random choice; needed with a temperature"),
    ("--top-k", "top_k", "choose among the k most likely (default 0: all)"),
    ("--logprobs", "logprobs", "log-probabilities of this many alternatives"),
)
_REALS: Final = (
    ("--temperature", "temperature", "0 is greedy (default 0)"),
    ("--top-p", "top_p", "choose within this probability mass (default 1)"),
    ("--min-p", "min_p", "least share of the likeliest token (default 0)"),
    ("--repetition-penalty", "repetition_penalty", "default 1"),
    ("--presence-penalty", "presence_penalty", "default 0"),
    ("--frequency-penalty", "frequency_penalty", "default 0"),
)


def generate_parser(context: CallContext) -> StrictParser:
    parser = StrictParser("coordinator generate [OPTIONS]", _DESCRIPTION, _EXAMPLES)
    parser.option("--prompt", "TEXT", "text to continue")
    parser.option("--prompt-tokens", "1,2,3", "token ids to continue, instead of a text")
    for flag, _, explanation in _INTEGERS:
        parser.option(flag, "N", explanation)
    for flag, _, explanation in _REALS:
        parser.option(flag, "X", explanation)
    parser.option("--stop-token-ids", "1,2", "tokens that end the text (default: the model's)")
    parser.switch("--json", "one JSON object on standard output and nothing else")
    add_model_options(parser, many_requests=False)
    return parser


def read_generate(argv: Sequence[str], context: CallContext) -> GenerateOptions:
    """Raises ConfigError with every problem. The values of parameters are judged with the model."""
    values, problems = generate_parser(context).read(argv)
    if (values.prompt is None) == (values.prompt_tokens is None):
        rule = "exactly one of --prompt and --prompt-tokens must be given"
        problems.append(ConfigProblem("--prompt", shown(values.prompt or "(not given)"), rule))
    prompt = None
    if values.prompt_tokens is not None:
        prompt = token_list("--prompt-tokens", values.prompt_tokens, problems)
    typed = vars(values)
    parameters: dict[str, object] = {"max_tokens": MAX_TOKENS}
    for flag, name, _ in _INTEGERS:
        text = typed[flag.removeprefix("--").replace("-", "_")]
        if text is not None:
            parameters[name] = _number(flag, text, parse_integer(text), "an integer", problems)
    for flag, name, _ in _REALS:
        text = typed[flag.removeprefix("--").replace("-", "_")]
        if text is not None:
            parameters[name] = _number(flag, text, _real(text), "a number", problems)
    if values.stop_token_ids is not None:
        ids = token_list("--stop-token-ids", values.stop_token_ids, problems)
        parameters["stop_token_ids"] = list(ids)
    manifest = model_manifest(values, context, problems)
    return GenerateOptions(manifest, values.prompt, prompt, parameters, values.json is True)


def _number(
    flag: str,
    typed: str,
    value: int | float | None,
    what: str,
    problems: list[ConfigProblem],
) -> int | float | None:
    if value is None:
        problems.append(ConfigProblem(flag, shown(typed), f"must be {what}"))
    return value


def _real(typed: str) -> float | None:
    """A number as JSON spells it; NaN and infinities are none."""
    try:
        value = json.loads(typed, parse_constant=lambda name: None)
    except ValueError:
        return None
    return value if type(value) in (int, float) else None
