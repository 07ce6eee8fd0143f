"""The next plan, as a pure function of who leaves, who waits and who runs.

Order and fairness (docs/spec/plan.md, L16 to L19):
1. Every leaving request is released; its slot and pages are free within the same plan.
2. Waiting requests enter first come, first served: the head that does not fit blocks the rest.
3. Holes among the slots are closed by moving the highest slot down.
4. Tokens: first one each to the decodes and to the oldest prefill, the longest unserved first; what
   is left of the budget goes to prefills, oldest first. So a step is at most one budget long; a
   decode is in every step while the budget exceeds the decodes, and in one of any
   ceil(slots / budget) consecutive steps otherwise.
Every list is also kept within the bytes of a plan; an admission that does not fit is deferred.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final

from coordinator.admission import fits_now, lifetime_pages
from coordinator.submission import Submission
from program.canonical import canonical_json
from program.plan import (
    INTEGER_MAX,
    PLAN_BYTES_MAX,
    SLOTS_MAX,
    TOP_MAX,
    Admit,
    Move,
    Release,
    Row,
    Sample,
    StepPlan,
)
from program.plan_codec import encode_plan, entry_bytes
from program.slots import Resident, SlotTable

# The largest entries: what a resident request may add to a plan beside its tokens.
_RELEASE_BYTES: Final = entry_bytes(Release(SLOTS_MAX, INTEGER_MAX, INTEGER_MAX))
_MOVE_BYTES: Final = entry_bytes(Move(SLOTS_MAX, SLOTS_MAX, INTEGER_MAX))
_ROW_BYTES: Final = entry_bytes(Row(INTEGER_MAX, SLOTS_MAX, INTEGER_MAX, (), Sample(TOP_MAX)))
# There are few, and every decode row has one.
_sample: Final = cache(Sample)
EMPTY_PLAN_BYTES: Final = len(canonical_json(encode_plan(StepPlan(step=INTEGER_MAX))))


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that no rank knows yet."""

    request_id: int
    submission: Submission


@dataclass(slots=True)
class Running:
    """A resident request, as its owner keeps it. tokens: prompt and generated so far.

    turn: see `turn_of`.
    """

    request_id: int
    tokens: Sequence[int]
    prompt_tokens: int
    logprobs: int | None
    turn: int


@dataclass(frozen=True, slots=True)
class Composed:
    """A plan, and what `slots.apply` would make of the table by it; whoever sends it applies it."""

    plan: StepPlan
    table: SlotTable


def turn_of(step: int, *, served: bool) -> int:
    """Place in the line for tokens: the lowest goes first, ties by request id.

    After a row: behind everyone who had none in that step. After an admission without a row: ahead
    of those who had one, but behind all who waited longer, or a stream of short newcomers would
    starve a tiny budget.
    """
    return 2 * step + (1 if served else 0)


def compose(
    table: SlotTable,
    leaving: frozenset[int],
    waiting: Sequence[Waiting],
    running: Sequence[Running],
    step_tokens: int,
) -> Composed | None:
    """The plan of step `table.next_step`; None when there is nothing to do.

    leaving and running name every resident of the table, each once; waiting is in order of arrival;
    running in order of request ids.
    """
    if not leaving and not waiting and len(running) <= step_tokens:
        usual = _decodes(table, running)
        if usual is not None:
            return usual
    composer = _Composer(table, step_tokens)
    composer.release(leaving)
    composer.reserve(len(running))
    admitted = composer.admit(waiting)
    composer.compact()
    composer.fill_rows([*running, *admitted])
    return composer.composed()


def _decodes(table: SlotTable, running: Sequence[Running]) -> Composed | None:
    """What the composer would make where all it can do is one decode each: nearly every step.

    None where there is more to do, or nothing.
    """
    requests = {request.request_id: request for request in running}
    rows: list[Row] = []
    slots = list(table.slots)
    for slot, resident in enumerate(slots[: len(running)]):
        if resident is None:
            return None
        request = requests[resident.request_id]
        start = resident.computed_tokens
        if start < request.prompt_tokens or start + 1 != len(request.tokens):
            return None
        rows.append(_row(request, slot, start, 1))
        slots[slot] = resident.advanced(start + 1)
    if not rows:
        return None
    step = table.next_step
    following = SlotTable(table.limits, tuple(slots), table.admissions, step + 1)
    return Composed(StepPlan(step, rows=tuple(rows)), following)


class _Composer:
    """Working copy of the slots while one plan is made."""

    def __init__(self, table: SlotTable, step_tokens: int) -> None:
        self._limits = table.limits
        self._step = table.next_step
        self._slots: list[Resident | None] = list(table.slots)
        self._admissions_ever = table.admissions
        self._table = table
        self._released: set[int] = set()
        self._pages: set[int] | None = None
        self._free_pages = table.free_pages
        self._tokens_left = step_tokens
        self._token_bytes = len(str(table.limits.vocab_size - 1)) + 1
        self._resident_bytes = _ROW_BYTES + _MOVE_BYTES + self._token_bytes
        self._bytes_left = PLAN_BYTES_MAX - EMPTY_PLAN_BYTES
        self._releases: list[Release] = []
        self._admissions: list[Admit] = []
        self._moves: list[Move] = []
        self._rows: list[Row] = []

    def composed(self) -> Composed | None:
        if not (self._releases or self._admissions or self._rows):
            return None
        plan = StepPlan(
            step=self._step,
            releases=tuple(self._releases),
            admissions=tuple(self._admissions),
            moves=tuple(self._moves),
            rows=tuple(self._rows),
        )
        slots = tuple(self._slots)
        return Composed(plan, SlotTable(self._limits, slots, self._admissions_ever, self._step + 1))

    def release(self, leaving: frozenset[int]) -> None:
        for slot, resident in enumerate(self._slots):
            if resident is not None and resident.request_id in leaving:
                self._releases.append(Release(slot, resident.request_id, resident.generation))
                self._slots[slot] = None
                self._released.update(resident.pages)
                self._free_pages += len(resident.pages)
                self._bytes_left -= _RELEASE_BYTES

    def reserve(self, residents: int) -> None:
        """Keeps room for a row of one token and a move of each resident."""
        self._bytes_left -= residents * self._resident_bytes

    def admit(self, waiting: Sequence[Waiting]) -> list[Running]:
        admitted: list[Running] = []
        for request in waiting:
            pages = lifetime_pages(request.submission, self._limits)
            if not fits_now(pages, self._slots.count(None), self._free_pages):
                break
            admit = self._admission(request, pages)
            needed = entry_bytes(admit) + self._resident_bytes
            if needed > self._bytes_left:
                break
            self._bytes_left -= needed
            self._place(admit)
            admitted.append(_newcomer(request, self._step))
        return admitted

    def _admission(self, request: Waiting, pages: int) -> Admit:
        """The entry that would admit the request: lowest free slot, lowest free pages."""
        taken = self._taken_pages()
        free = (page for page in range(self._limits.pages) if page not in taken)
        return Admit(
            slot=self._slots.index(None),
            request_id=request.request_id,
            generation=self._admissions_ever + 1,
            pages=tuple(islice(free, pages)),
            prompt_tokens=len(request.submission.prompt_token_ids),
            tokens_max=request.submission.tokens_max,
            sampling=request.submission.sampling,
        )

    def _taken_pages(self) -> set[int]:
        """Built once per plan, and only where a request may enter."""
        if self._pages is None:
            self._pages = set(self._table.pages_in_use() - self._released)
        return self._pages

    def _place(self, admit: Admit) -> None:
        self._admissions.append(admit)
        self._admissions_ever = admit.generation
        self._taken_pages().update(admit.pages)
        self._free_pages -= len(admit.pages)
        self._slots[admit.slot] = Resident.of(admit)

    def compact(self) -> None:
        """Closes holes. Admissions took the lowest slots, so only older residents move."""
        holes = deque(slot for slot, resident in enumerate(self._slots) if resident is None)
        for from_slot in range(len(self._slots) - 1, -1, -1):
            if not holes or holes[0] > from_slot:
                return
            resident = self._slots[from_slot]
            if resident is not None:
                hole = holes.popleft()
                self._moves.append(Move(from_slot, hole, resident.request_id))
                self._slots[hole], self._slots[from_slot] = resident, None

    def fill_rows(self, residents: Sequence[Running]) -> None:
        requests = {request.request_id: request for request in residents}
        computed = {
            resident.request_id: resident.computed_tokens
            for resident in self._slots
            if resident is not None
        }
        counts = self._share_tokens(residents, computed)
        for slot, resident in enumerate(self._slots):
            count = 0 if resident is None else counts.get(resident.request_id, 0)
            if resident is not None and count:
                start = resident.computed_tokens
                self._rows.append(_row(requests[resident.request_id], slot, start, count))
                self._slots[slot] = resident.advanced(start + count)

    def _share_tokens(
        self, residents: Sequence[Running], computed: dict[int, int]
    ) -> dict[int, int]:
        """Tokens per request id; requests without an entry wait."""
        prefills = [r for r in residents if computed[r.request_id] < r.prompt_tokens]
        first = [r for r in residents if computed[r.request_id] >= r.prompt_tokens] + prefills[:1]
        if len(first) > self._tokens_left:
            first.sort(key=lambda request: (request.turn, request.request_id))
            del first[self._tokens_left :]
        counts = {request.request_id: 1 for request in first}
        self._tokens_left -= len(counts)
        extra = min(self._tokens_left, self._bytes_left // self._token_bytes)
        for request in prefills:
            request_id = request.request_id
            remaining = len(request.tokens) - computed[request_id] - counts.get(request_id, 0)
            granted = min(extra, remaining)
            if granted > 0:
                counts[request_id] = counts.get(request_id, 0) + granted
                extra -= granted
        return counts


def _newcomer(request: Waiting, step: int) -> Running:
    submission = request.submission
    return Running(
        request_id=request.request_id,
        tokens=submission.prompt_token_ids,
        prompt_tokens=len(submission.prompt_token_ids),
        logprobs=submission.logprobs,
        turn=turn_of(step, served=False),
    )


def _row(request: Running, slot: int, start: int, count: int) -> Row:
    """A row samples exactly when it reaches the end of the known tokens."""
    end = start + count
    artifact = _sample(request.logprobs) if end == len(request.tokens) else None
    return Row(request.request_id, slot, start, tuple(request.tokens[start:end]), artifact)
