"""The steps of one scored request: tokens in, plans out. Pure.

Scoring is teacher-forced: the tokens are given, every position's prediction can be asked for. It
must not know ranks, files or command lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from coordinator.composer import EMPTY_PLAN_BYTES
from coordinator.model_options import ScoreOptions
from errors import ConfigError
from program.plan import (
    INTEGER_MAX,
    PLAN_BYTES_MAX,
    SLOTS_MAX,
    TOP_MAX,
    Admit,
    PlanLimits,
    Release,
    Row,
    Score,
    StepPlan,
    pages_needed,
)
from program.plan_codec import entry_bytes
from program.slots import SlotTable

TOP_DEFAULT: Final = 64
_SLOT: Final = 0
# What a plan may hold beside the tokens of its one row, all numbers as long as they can be.
_ADMIT: Final = Admit(SLOTS_MAX, *(INTEGER_MAX,) * 2, (INTEGER_MAX,), *(INTEGER_MAX,) * 2, None)
_ROW: Final = Row(INTEGER_MAX, SLOTS_MAX, INTEGER_MAX, (), Score(INTEGER_MAX, TOP_MAX))
_ENTRY_BYTES: Final = entry_bytes(_ADMIT) + entry_bytes(_ROW) + len(str(INTEGER_MAX))


@dataclass(frozen=True)
class ScoreRequest:
    """What is scored, checked against a model's limits.

    top: alternatives per position. scored_from: first position whose prediction is wanted.
    chunk: tokens per step before position `decode_from`; from there on it is one.
    """

    tokens: tuple[int, ...]
    top: int
    scored_from: int
    chunk: int
    decode_from: int


def score_request(
    tokens: tuple[int, ...], options: ScoreOptions, limits: PlanLimits, context_tokens: int
) -> ScoreRequest:
    """Raises ConfigError for tokens or options that this model can't run.

    context_tokens: of the model; limits may be made for less.
    """
    check_tokens(tokens, limits.vocab_size, context_tokens)
    count = len(tokens)
    largest = step_tokens_max(limits)
    top = min(TOP_DEFAULT, limits.vocab_size) if options.top is None else options.top
    chunk = largest if options.prefill_tokens is None else options.prefill_tokens
    last = count if options.last is None else options.last
    decode_from = count if options.decode_from is None else options.decode_from
    _demand_at_most("--top", top, limits.vocab_size, "the vocabulary")
    _demand_at_most("--prefill-tokens", chunk, largest, "what one step takes")
    _demand_at_most("--positions last", last, count, "the number of tokens")
    _demand_at_most("--decode-from", decode_from, count, "the number of tokens")
    pages = pages_needed(count, limits.page_tokens)
    if pages > limits.pages:
        rule = f"needs {pages} pages of {limits.page_tokens} tokens, the ranks hold {limits.pages}"
        raise ConfigError.single("number of tokens", count, rule, "config.capacity")
    return ScoreRequest(tokens, top, count - last, chunk, decode_from)


def check_tokens(tokens: tuple[int, ...], vocab_size: int, context_tokens: int) -> None:
    """Raises ConfigError for an empty or too long prompt, or a token id out of range."""
    if not tokens:
        raise ConfigError.single("tokens", "[]", "must hold at least one token id")
    _demand_at_most("number of tokens", len(tokens), context_tokens, "the model's context")
    for index, token in enumerate(tokens):
        if not 0 <= token < vocab_size:
            rule = f"must be at least 0 and below the vocabulary's {vocab_size}"
            raise ConfigError.single(f"tokens[{index}]", token, rule)


def step_tokens_max(limits: PlanLimits) -> int:
    """Tokens that one step takes: what was agreed, and what fits the bytes of a plan."""
    token_bytes = len(str(limits.vocab_size - 1)) + 1
    room = (PLAN_BYTES_MAX - EMPTY_PLAN_BYTES - _ENTRY_BYTES) // token_bytes
    return min(limits.tokens_per_step, room)


def plans(request: ScoreRequest, table: SlotTable) -> Iterator[StepPlan]:
    """One admission, the rows of the chunks, one release: a step per chunk and one to release.

    table: of an idle session.
    """
    count, generation = len(request.tokens), table.admissions + 1
    request_id = table.admissions
    pages = tuple(range(pages_needed(count, table.limits.page_tokens)))
    admit = Admit(_SLOT, request_id, generation, pages, count, count, None)
    step = table.next_step
    for start, stop in _chunks(request):
        last = stop - max(start, request.scored_from)
        artifact = Score(last, request.top) if last > 0 else None
        row = Row(request_id, _SLOT, start, request.tokens[start:stop], artifact)
        yield StepPlan(step, admissions=(admit,) if start == 0 else (), rows=(row,))
        step += 1
    yield StepPlan(step, releases=(Release(_SLOT, request_id, generation),))


def _chunks(request: ScoreRequest) -> Iterator[tuple[int, int]]:
    """[start, stop) of every step."""
    start = 0
    while start < len(request.tokens):
        stop = start + 1
        if start < request.decode_from:
            stop = min(start + request.chunk, request.decode_from)
        yield start, stop
        start = stop


def _demand_at_most(field: str, value: int, largest: int, what: str) -> None:
    if value > largest:
        raise ConfigError.single(field, value, f"must be at most {largest}, {what}")
