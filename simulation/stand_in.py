"""An executor that keeps state as a model does and computes almost nothing.

Each slot holds a running checksum of its request's tokens (as recurrent state does), each page the
tokens of its positions (as the KV cache does). The next token is a function of both, so whoever
reads another request's slot or page, or state that was not cleared, says another token than
`expected_token`. Ten thousand steps of it take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NoReturn
from zlib import crc32

from errors import MisuseError
from program.artifacts import SampledToken, TokenLogprob
from program.plan import PlanLimits, Row, Sample, StepPlan
from program.plan_codec import decode_plan, plan_digest
from program.qwen35 import PRIMARY_RANK
from program.slots import Resident, SlotTable, apply, check
from program.spec import ProgramSpec
from program.step_report import RESULT_TENSOR, StepReport, encode_report

Buffer = bytes | bytearray | memoryview
EMPTY: Final = 1
# Of a place that belongs to nobody.
NOBODY: Final = 0xDEAD


def advanced(state: int, token: int) -> int:
    """A slot's state after one more token."""
    return crc32(token.to_bytes(8, "big"), state)


def expected_token(tokens: Sequence[int], vocab_size: int) -> int:
    """What follows these tokens, if nobody else's state is involved."""
    state = EMPTY
    for token in tokens:
        state = advanced(state, token)
    return _chosen(state, tokens, vocab_size)


def _chosen(state: int, cached: Sequence[int], vocab_size: int) -> int:
    return crc32(repr((state, list(cached))).encode("ascii")) % vocab_size


@dataclass(frozen=True)
class StandInArtifact:
    """A rank's RESULT."""

    tensor: str
    shape: tuple[int, ...]
    payload: Buffer
    report: Mapping[str, Any]


class StandIn:
    """Behind worker/executor.py's protocol. load: what its load reports."""

    def __init__(
        self, spec: ProgramSpec, limits: PlanLimits, rank: int, load: dict[str, int]
    ) -> None:
        self.table = SlotTable.empty(limits)
        self.slots = [NOBODY] * limits.slots
        self.pages = [[NOBODY] * limits.page_tokens for _ in range(limits.pages)]
        self._spec = spec
        self._limits = limits
        self._rank = rank
        self._load = load
        self._plan = StepPlan(step=0)

    def load_tensor(self, name: str, payload: Buffer) -> NoReturn:
        raise MisuseError("nothing is loaded from frames")

    def load_local(self, parameters: Mapping[str, object]) -> Mapping[str, int]:
        return self._load

    def accept_operand(self, shape: tuple[int, ...]) -> NoReturn:
        raise MisuseError("a program with plans takes no INPUT")

    def accept(self, plan: Mapping[str, object]) -> str:
        decoded = decode_plan(plan, self._limits)
        check(decoded, self.table)
        self._plan = decoded
        return plan_digest(decoded)

    def begin(self, operand: tuple[tuple[int, ...], Buffer] | None) -> tuple[int, ...]:
        before, plan = self.table, self._plan
        for release in plan.releases:
            found = before.find(release.request_id)
            if found is not None:
                self.clear(release.slot, found[1])
        for admit in plan.admissions:
            self.admit(admit.slot)
        for move in plan.moves:
            self.move(move.from_slot, move.to_slot)
        self.table = apply(plan, before)
        for row in plan.rows:
            self.advance(row)
        return (plan.operand_rows, self._spec.hidden_size)

    def clear(self, slot: int, resident: Resident) -> None:
        self.slots[slot] = NOBODY
        for page in resident.pages:
            self.pages[page] = [NOBODY] * self._limits.page_tokens

    def admit(self, slot: int) -> None:
        self.slots[slot] = EMPTY

    def move(self, from_slot: int, to_slot: int) -> None:
        self.slots[to_slot], self.slots[from_slot] = self.slots[from_slot], NOBODY

    def advance(self, row: Row) -> None:
        for offset, token in enumerate(row.token_ids):
            self.slots[row.slot] = advanced(self.slots[row.slot], token)
            page, place = self.locate(row, row.start_position + offset)
            self.pages[page][place] = token

    def locate(self, row: Row, position: int) -> tuple[int, int]:
        """Page and place in it of one of the row's request's positions."""
        resident = self.table.slots[row.slot]
        if resident is None:
            raise MisuseError("a row of nobody")
        index, place = divmod(position, self._limits.page_tokens)
        return resident.pages[index], place

    def partial(self, stage: int) -> Buffer:
        return bytes(4 * self._plan.operand_rows * self._spec.hidden_size)

    def reduced(self, stage: int, total: Buffer) -> None:
        """Nothing comes of it."""

    def finish(self) -> StandInArtifact:
        artifacts = tuple(self._sampled(row) for row in self._plan.rows if row.artifact is not None)
        hidden = repr([self.slots[row.slot] for row in self._plan.rows])
        report = StepReport(
            plan_digest=plan_digest(self._plan),
            state_digest=self.table.digest(),
            hidden_digest=sha256(hidden.encode("ascii")).hexdigest(),
            artifacts=artifacts if self._rank == PRIMARY_RANK else (),
        )
        encoded = encode_report(report, self._plan)
        return StandInArtifact(RESULT_TENSOR, encoded.shape, encoded.payload, encoded.report)

    def _sampled(self, row: Row) -> SampledToken:
        end = row.start_position + len(row.token_ids)
        cached = [
            self.pages[page][place] for page, place in (self.locate(row, p) for p in range(end))
        ]
        token = _chosen(self.slots[row.slot], cached, self._limits.vocab_size)
        wanted = row.artifact
        if not isinstance(wanted, Sample) or wanted.logprobs is None:
            return SampledToken(row.request_id, end, token)
        top = tuple(TokenLogprob(one, -1.0 - one) for one in range(wanted.logprobs))
        return SampledToken(row.request_id, end, token, -0.5, top)


StandInMaker = Callable[[ProgramSpec, PlanLimits, int, dict[str, int]], StandIn]
