"""What a client asks for, read strictly: every parameter is checked before any rank hears of it.

A mistake raises RequestError naming the parameter; nothing is ignored, clamped or guessed. Text,
templates and stop strings are the front end's business: here a prompt is a list of token ids.

Codes: request.unknown (no such parameter), request.missing, request.type, request.range,
request.context (prompt and max_tokens exceed the model's context), request.unsupported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from errors import RequestError
from program.plan import PlanLimits, Sampling
from program.sampling_rules import REAL_RANGES, sampling_problem

# What the public completion interfaces allow; a RESULT has room for far more.
LOGPROBS_MAX: Final = 20
STOP_TOKEN_IDS_MAX: Final = 256

PARAMETERS: Final = frozenset(
    {
        "prompt_token_ids",
        "max_tokens",
        "stop_token_ids",
        "logprobs",
        "prefix_reuse",
        "top_k",
        "seed",
        "logit_bias",
        *REAL_RANGES,
    }
)

_PREFIX_REUSE_REASON: Final = (
    "is not supported: keys and values alone do not restore a hybrid model's recurrent and "
    "convolution state, so a reused prefix would answer wrongly"
)


@dataclass(frozen=True, slots=True)
class Submission:
    """One valid request. logprobs: None, or how many alternatives beside each token.

    stop_token_ids: a sampled token among these ends the request; the token is still reported.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stop_token_ids: frozenset[int] = frozenset()
    logprobs: int | None = None

    @property
    def tokens_max(self) -> int:
        """Positions that may ever be computed; the last sampled token never is."""
        return len(self.prompt_token_ids) + self.max_tokens - 1


def parse_submission(parameters: Mapping[str, object], limits: PlanLimits) -> Submission:
    """The request that `parameters` (decoded JSON) describe. Raises RequestError.

    Required: prompt_token_ids, max_tokens; seed too where temperature is above 0, because a core
    draws no random numbers. Absent parameters are neutral: greedy, no penalty, no logprobs.
    """
    for name in sorted(parameters):
        if name not in PARAMETERS:
            raise RequestError("request.unknown", f"{name}: is no parameter", param=name)
    if _boolean(parameters, "prefix_reuse"):
        raise RequestError(
            "request.unsupported", f"prefix_reuse: {_PREFIX_REUSE_REASON}", param="prefix_reuse"
        )
    prompt = _token_ids(parameters, "prompt_token_ids", limits, count_max=limits.context_tokens)
    if not prompt:
        raise _out_of_range("prompt_token_ids", 0, "must have at least 1 token")
    max_tokens = _integer(parameters, "max_tokens", 1, limits.context_tokens)
    if len(prompt) + max_tokens > limits.context_tokens:
        raise RequestError(
            "request.context",
            f"max_tokens = {max_tokens}: with {len(prompt)} prompt tokens must not exceed the "
            f"context of {limits.context_tokens}",
            param="max_tokens",
        )
    stop: tuple[int, ...] = ()
    if "stop_token_ids" in parameters:
        stop = _token_ids(parameters, "stop_token_ids", limits, count_max=STOP_TOKEN_IDS_MAX)
    logprobs = None
    if parameters.get("logprobs") is not None:
        logprobs = _integer(parameters, "logprobs", 0, min(LOGPROBS_MAX, limits.vocab_size))
    sampling = _sampling(parameters, limits)
    return Submission(prompt, max_tokens, sampling, frozenset(stop), logprobs)


def _sampling(parameters: Mapping[str, object], limits: PlanLimits) -> Sampling:
    neutral = Sampling()
    reals = {
        name: _real(name, parameters[name]) if name in parameters else getattr(neutral, name)
        for name in REAL_RANGES
    }
    sampling = Sampling(
        **reals,
        top_k=_integer_of("top_k", parameters.get("top_k", 0)),
        seed=_integer_of("seed", parameters.get("seed", 0)),
        logit_bias=_logit_bias(parameters.get("logit_bias", {})),
    )
    problem = sampling_problem(sampling, limits.vocab_size)
    if problem is not None:
        raise _out_of_range(problem.parameter, problem.value, problem.rule)
    if reals["temperature"] > 0.0 and "seed" not in parameters:
        raise RequestError(
            "request.missing", "seed: must be given with a temperature above 0", param="seed"
        )
    return sampling


def _logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    name = "logit_bias"
    if not isinstance(value, Mapping):
        raise _wrong_type(name, value, "must be an object of token id to bias")
    entries: list[tuple[int, float]] = []
    for key, bias in value.items():
        if not isinstance(key, str) or not key.isascii() or not key.isdigit() or len(key) > 16:
            raise _wrong_type(name, key, "must have decimal token ids as keys")
        if str(int(key)) != key:
            raise _wrong_type(name, key, "must spell token ids without leading zeros")
        entries.append((int(key), _real(name, bias)))
    return tuple(sorted(entries))


def _token_ids(
    parameters: Mapping[str, object], name: str, limits: PlanLimits, *, count_max: int
) -> tuple[int, ...]:
    value = _present(parameters, name)
    if not isinstance(value, list | tuple):
        raise _wrong_type(name, value, "must be an array of token ids")
    if len(value) > count_max:
        raise _out_of_range(name, len(value), f"must have at most {count_max} tokens")
    for index, token_id in enumerate(value):
        if type(token_id) is not int:
            raise _wrong_type(name, token_id, f"must be integers, also at index {index}")
        if not 0 <= token_id < limits.vocab_size:
            rule = f"must be at least 0 and below {limits.vocab_size}, also at index {index}"
            raise _out_of_range(name, token_id, rule)
    return tuple(value)


def _present(parameters: Mapping[str, object], name: str) -> object:
    if name not in parameters:
        raise RequestError("request.missing", f"{name}: must be given", param=name)
    return parameters[name]


def _integer(parameters: Mapping[str, object], name: str, low: int, high: int) -> int:
    number = _integer_of(name, _present(parameters, name))
    if not low <= number <= high:
        raise _out_of_range(name, number, f"must be at least {low} and at most {high}")
    return number


def _integer_of(name: str, value: object) -> int:
    # bool is a subclass of int, and JSON's true is not a number.
    if type(value) is not int:
        raise _wrong_type(name, value, "must be an integer")
    return value


def _real(name: str, value: object) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    # Integers beyond float64 would overflow; far smaller ones are out of every range.
    if type(value) is int and abs(value) < 2**53:
        return float(value)
    raise _wrong_type(name, value, "must be a finite number")


def _boolean(parameters: Mapping[str, object], name: str) -> bool:
    value = parameters.get(name, False)
    if type(value) is not bool:
        raise _wrong_type(name, value, "must be true or false")
    return value


def _shown(value: object) -> str:
    """A client's value as a message shows it: short, whatever it holds."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    if isinstance(value, str):
        return repr(value[:60])
    if isinstance(value, int) and abs(value) >= 2**128:
        # It may have more digits than str() converts.
        return "an integer of more than 128 bits"
    return repr(value)


def _wrong_type(name: str, value: object, rule: str) -> RequestError:
    return RequestError("request.type", f"{name} = {_shown(value)}: {rule}", param=name)


def _out_of_range(name: str, value: object, rule: str) -> RequestError:
    return RequestError("request.range", f"{name} = {_shown(value)}: {rule}", param=name)
