"""One step of the program, as every rank receives it: the plan's types, limits and sizes.

A plan is ordered: releases, admissions, moves, rows (docs/spec/plan.md). The coordinator decides
all of it; a rank obeys and reports. This file must not know policy (who runs next), arrays or
frames. `program/plan_codec.py` turns a plan into JSON and back, `program/plan_bounds.py` checks it
against the agreed limits, `program/slots.py` against the state of the slots.

Identity is `request_id`; a slot is only where a rank keeps a request's state. Page numbers are
logical, chosen by the coordinator for the request's full lifetime and the same on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from errors import ConfigError

# A partial is one frame; its payload limit is the wire's (docs/spec/frame.md). The wire package may
# not be imported here, so the value is restated and a test of the coordinator compares the two.
PAYLOAD_BYTES_MAX: Final = 16_777_216
# Of the 65,536 bytes of a COMMAND's metadata, 2,048 stay for its other keys: a phase name of 256
# characters, each escaped to 6 bytes, and two integers of 16 digits need 1,620.
PLAN_BYTES_MAX: Final = 65_536 - 2_048
# JSON integers stay below 2^53 (docs/spec/metadata.md, M1).
INTEGER_MAX: Final = 2**53 - 1
# A seed is 64 bits wide; it travels as 16 hexadecimal digits because of INTEGER_MAX.
SEED_MAX: Final = 2**64 - 1
# The most alternatives that one position may report beside the chosen token.
TOP_MAX: Final = 128
# In the worst case every slot has a release or a row with a move; 256 of them fill a plan.
SLOTS_MAX: Final = 256
# 300 entries of at most 40 bytes leave four fifths of the plan for everything else.
LOGIT_BIAS_ENTRIES_MAX: Final = 300
# One (token id, log-probability) pair of a result is two binary32 of RESULT's payload.
ARTIFACT_PAIRS_MAX: Final = PAYLOAD_BYTES_MAX // 8
# Every token id up to here is exact in binary32.
VOCAB_SIZE_MAX: Final = 2**24


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the primary rank picks a request's tokens. Neutral values switch a rule off.

    temperature 0: greedy. top_k 0, top_p 1, min_p 0, repetition_penalty 1, presence_penalty 0 and
    frequency_penalty 0 are neutral. logit_bias: (token id, bias) in ascending order of ids.
    seed: 64-bit key of the counter-based uniforms (model/sampling.py).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Wanted of a row: one token, sampled from the logits after the row's last token.

    logprobs: None for the token alone, n for its log-probability and the n most likely tokens.
    """

    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """Wanted of a row: for its `last` last positions, the `top` most likely next tokens."""

    last: int
    top: int


Artifact = Sample | Score


@dataclass(frozen=True, slots=True)
class Release:
    """The request leaves; its slot's state and its pages are cleared before anything else."""

    slot: int
    request_id: int
    generation: int


@dataclass(frozen=True, slots=True)
class Admit:
    """A request enters a free slot with every page of its whole life.

    generation: number of this admission in the session, from 1, over all slots.
    pages: strictly ascending page numbers; page i holds positions i * page_tokens and onwards.
    prompt_tokens: tokens before the first sampled one (penalties tell the two apart).
    tokens_max: positions that may ever be computed: prompt + max_tokens - 1, because the last
    sampled token is never fed back. sampling: None when nothing is ever sampled.
    """

    slot: int
    request_id: int
    generation: int
    pages: tuple[int, ...]
    prompt_tokens: int
    tokens_max: int
    sampling: Sampling | None


@dataclass(frozen=True, slots=True)
class Move:
    """The request's slot state goes to a free slot; its pages and generation stay."""

    from_slot: int
    to_slot: int
    request_id: int


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens of one request: positions start_position, start_position + 1, ...

    A row without tokens changes no state. A prefill chunk and a decode token differ in length only.
    """

    request_id: int
    slot: int
    start_position: int
    token_ids: tuple[int, ...]
    artifact: Artifact | None = None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What every rank does in one step; rows are in ascending order of slots."""

    step: int
    releases: tuple[Release, ...] = ()
    admissions: tuple[Admit, ...] = ()
    moves: tuple[Move, ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def token_count(self) -> int:
        return sum(len(row.token_ids) for row in self.rows)

    @property
    def operand_rows(self) -> int:
        """Rows of every partial and total of this step: its tokens, or one row of zeros."""
        return max(1, self.token_count)


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """What the ranks agreed on before the first step; every plan stays inside.

    slots, pages: the minimum over ranks (program/capacity.py). tokens_per_step: see
    `tokens_per_step_max`. context_tokens: positions the model was made for.
    """

    vocab_size: int
    context_tokens: int
    slots: int
    pages: int
    page_tokens: int
    tokens_per_step: int

    def __post_init__(self) -> None:
        for field in self.__slots__:
            value = getattr(self, field)
            if type(value) is not int or not 1 <= value <= INTEGER_MAX:
                raise ConfigError.single(field, value, "must be an integer of at least 1")
        for field, largest in (("slots", SLOTS_MAX), ("vocab_size", VOCAB_SIZE_MAX)):
            value = getattr(self, field)
            if value > largest:
                raise ConfigError.single(field, value, f"must be at most {largest}")


def tokens_per_step_max(hidden_size: int, item_bytes: int) -> int:
    """Most tokens whose partial [tokens, hidden] fits one frame's payload."""
    return PAYLOAD_BYTES_MAX // (item_bytes * hidden_size)


def pages_needed(tokens_max: int, page_tokens: int) -> int:
    """Pages for the full lifetime: ceil(tokens_max / page_tokens)."""
    return -(-tokens_max // page_tokens)
