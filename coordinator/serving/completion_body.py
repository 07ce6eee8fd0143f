"""The body of POST /v1/completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from coordinator.serving.api_options import ApiOptions
from coordinator.serving.fields import (
    Fields,
    missing,
    out_of_range,
    sound_text,
    unsupported,
    wrong_type,
)
from coordinator.serving.neutral_parameters import COMPLETION, take_neutral
from coordinator.serving.parameters import (
    Common,
    take_common,
    take_logprobs,
    take_model,
    token_ids,
)
from program.plan import PlanLimits

# As the public interface defines it.
DEFAULT_TOKENS: Final = 16
_RULE: Final = "must be a string, an array of strings, of token ids, or of arrays of token ids"

Prompt = str | list[int]


@dataclass(frozen=True, slots=True)
class CompletionBody:
    """echo: the answer begins with the prompt."""

    prompts: tuple[Prompt, ...]
    echo: bool
    common: Common


def parse_completion(
    body: Mapping[str, object], model_id: str, limits: PlanLimits, options: ApiOptions
) -> CompletionBody:
    """Raises RequestError naming the parameter."""
    fields = Fields(body)
    take_model(fields, model_id)
    prompts = _prompts(fields.take("prompt"), limits, options.prompts_max)
    take_neutral(fields, COMPLETION)
    common = take_common(fields, limits, take_logprobs(fields))
    echo = fields.boolean("echo")
    fields.end()
    if echo and common.logprobs is not None:
        rule = "is not supported with echo: no log-probabilities are computed for the prompt"
        raise unsupported("logprobs", rule)
    if common.timings and len(prompts) > 1:
        raise unsupported("timings", "must be given with one prompt only")
    return CompletionBody(prompts, echo, common)


def _prompts(value: object, limits: PlanLimits, count_max: int) -> tuple[Prompt, ...]:
    if value is None:
        raise missing("prompt")
    if isinstance(value, str):
        return (sound_text("prompt", value),)
    if not isinstance(value, list):
        raise wrong_type("prompt", value, _RULE)
    if not value:
        raise out_of_range("prompt", value, "must not be empty")
    if isinstance(value[0], int):
        return (token_ids("prompt", value, limits),)
    if len(value) > count_max:
        raise out_of_range("prompt", len(value), f"must have at most {count_max} prompts")
    if isinstance(value[0], str):
        return tuple(sound_text("prompt", one) for one in value)
    return tuple(_ids(one, limits) for one in value)


def _ids(value: object, limits: PlanLimits) -> list[int]:
    if not isinstance(value, list):
        raise wrong_type("prompt", value, _RULE)
    return token_ids("prompt", value, limits)
