"""What completions and chat completions have in common: length, sampling, stops, stream.

Each value is checked here or by `coordinator.submission`; docs/spec/http.md has the table.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from coordinator.serving.fields import Fields, out_of_range, sound_text, unsupported, wrong_type
from coordinator.submission import (
    LOGPROBS_MAX,
    STOP_TOKEN_IDS_MAX,
    Submission,
    parse_submission,
)
from errors import RequestError
from program.plan import PlanLimits

STOP_STRINGS_MAX: Final = 16
STOP_CHARACTERS_MAX: Final = 256
# What the public interfaces' definitions give to a request that says nothing.
DEFAULT_TEMPERATURE: Final = 1.0
_LENGTHS: Final = ("max_tokens", "max_completion_tokens")
_SAMPLING: Final = (
    "top_p",
    "min_p",
    "top_k",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
)
_SEED_BITS: Final = 63


@dataclass(frozen=True, slots=True)
class Common:
    """max_tokens: as given, None for the default. length_name: the parameter that gave it.

    sampling: parameters as `parse_submission` takes them. logprobs: alternatives beside each token.
    """

    max_tokens: int | None
    length_name: str
    sampling: Mapping[str, object]
    stop: tuple[str, ...]
    stop_token_ids: Sequence[object]
    ignore_eos: bool
    logprobs: int | None
    stream: bool
    include_usage: bool
    timings: bool


def take_model(fields: Fields, model_id: str) -> None:
    """Absent, or this model's name. Raises RequestError `request.model`."""
    name = fields.text("model")
    if name is not None and name != model_id:
        rule = f"model = {name[:60]!r}: is not served here; {model_id!r} is"
        raise RequestError("request.model", rule, param="model")


def take_common(fields: Fields, limits: PlanLimits, logprobs: int | None) -> Common:
    """Everything but the prompt. Raises RequestError."""
    max_tokens, length_name = _length(fields, limits)
    stream = fields.boolean("stream")
    return Common(
        max_tokens=max_tokens,
        length_name=length_name,
        sampling=_sampling(fields),
        stop=_stop(fields),
        stop_token_ids=fields.array("stop_token_ids", STOP_TOKEN_IDS_MAX),
        ignore_eos=fields.boolean("ignore_eos"),
        logprobs=logprobs,
        stream=stream,
        include_usage=_include_usage(fields, stream),
        timings=fields.boolean("timings"),
    )


def take_logprobs(fields: Fields) -> int | None:
    """The number of alternatives, as completions spell it."""
    return fields.integer("logprobs", 0, LOGPROBS_MAX)


def submission_of(
    common: Common,
    prompt: Sequence[int],
    prompt_name: str,
    limits: PlanLimits,
    *,
    default_tokens: int,
    eos_token_ids: Sequence[int],
    draw: Callable[[int], int] = secrets.randbits,
) -> Submission:
    """The request for one prompt. Raises RequestError naming `prompt_name` or the length.

    default_tokens: new tokens where the body names no number; fewer where the context, or the
    memory for one request, ends before. draw: a seed of so many random bits.
    """
    room = limits.context_tokens - len(prompt)
    if not prompt:
        raise RequestError("request.range", f"{prompt_name}: must have a token", param=prompt_name)
    if room < 1:
        rule = f"{len(prompt)} tokens leave no room in the context of {limits.context_tokens}"
        raise RequestError("request.context", f"{prompt_name}: {rule}", param=prompt_name)
    wanted = common.max_tokens
    if wanted is not None and wanted > room:
        name = common.length_name
        rule = f"with {len(prompt)} prompt tokens exceeds the context of {limits.context_tokens}"
        raise RequestError("request.context", f"{name} = {wanted}: {rule}", param=name)
    if wanted is None:
        # The last new token is never fed back, so it takes no place in a page.
        placed = limits.pages * limits.page_tokens - len(prompt) + 1
        wanted = max(1, min(default_tokens, room, placed))
    sampling = dict(common.sampling)
    if sampling["temperature"] != 0 and "seed" not in sampling:
        sampling["seed"] = draw(_SEED_BITS)
    parameters = sampling | {
        "prompt_token_ids": prompt,
        "max_tokens": wanted,
        "stop_token_ids": common.stop_token_ids,
        "logprobs": common.logprobs,
    }
    submission = parse_submission(parameters, limits)
    if common.ignore_eos:
        return submission
    return replace(submission, stop_token_ids=submission.stop_token_ids.union(eos_token_ids))


def _length(fields: Fields, limits: PlanLimits) -> tuple[int | None, str]:
    given = {
        name: value
        for name in _LENGTHS
        if (value := fields.integer(name, 1, limits.context_tokens)) is not None
    }
    if len(set(given.values())) > 1:
        raise unsupported(_LENGTHS[1], f"must not differ from {_LENGTHS[0]}")
    for name, value in given.items():
        return value, name
    return None, _LENGTHS[0]


def _sampling(fields: Fields) -> dict[str, object]:
    sampling: dict[str, object] = {"temperature": DEFAULT_TEMPERATURE}
    for name in ("temperature", "seed", *_SAMPLING):
        value = fields.take(name)
        if value is not None:
            sampling[name] = value
    return sampling


def _stop(fields: Fields) -> tuple[str, ...]:
    value = fields.take("stop")
    if value is None:
        return ()
    stops = value if isinstance(value, list) else [value]
    if len(stops) > STOP_STRINGS_MAX:
        rule = f"must have at most {STOP_STRINGS_MAX} strings"
        raise out_of_range("stop", len(stops), rule)
    for stop in stops:
        text = sound_text("stop", stop)
        if not 1 <= len(text) <= STOP_CHARACTERS_MAX:
            rule = f"must have 1 to {STOP_CHARACTERS_MAX} characters each"
            raise out_of_range("stop", text, rule)
    return tuple(dict.fromkeys(stops))


def _include_usage(fields: Fields, stream: bool) -> bool:
    options = fields.fields("stream_options")
    if options is None:
        return False
    if not stream:
        raise unsupported("stream_options", "must be given with stream = true only")
    include_usage = options.boolean("include_usage")
    if options.boolean("include_obfuscation"):
        raise unsupported("stream_options.include_obfuscation", "is not supported: must be false")
    options.end()
    return include_usage


def token_ids(name: str, value: Sequence[object], limits: PlanLimits) -> list[int]:
    """Ids of the vocabulary. Raises RequestError."""
    ids: list[int] = []
    for token_id in value:
        if type(token_id) is not int:
            raise wrong_type(name, token_id, "must be integers")
        if not 0 <= token_id < limits.vocab_size:
            raise out_of_range(name, token_id, f"must be at least 0 and below {limits.vocab_size}")
        ids.append(token_id)
    return ids
