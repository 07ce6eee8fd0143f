"""Which request holds which slot and pages, and which plans that allows (docs/spec/plan.md, L10).

The coordinator and every rank keep the same table and change it by the same pure function, so they
can't drift apart unnoticed: `apply` returns a new table or raises, and never changes the old one.
After a step all tables have equal digests. It must not know arrays, policy or frames.
"""

from __future__ import annotations

from dataclasses import dataclass

from errors import ContractError
from program.canonical import digest
from program.plan import Admit, Move, PlanLimits, Release, Row, Sample, StepPlan
from program.plan_bounds import check_bounds
from program.plan_codec import page_runs


@dataclass(frozen=True, slots=True)
class Resident:
    """One admitted request. computed_tokens: positions whose state the ranks hold.

    page_runs: the pages as the digest spells them, kept because the digest is taken every step.
    """

    request_id: int
    generation: int
    pages: tuple[int, ...]
    prompt_tokens: int
    tokens_max: int
    samples: bool
    page_runs: tuple[tuple[int, int], ...]
    computed_tokens: int = 0

    @classmethod
    def of(cls, admit: Admit) -> Resident:
        return cls(
            request_id=admit.request_id,
            generation=admit.generation,
            pages=admit.pages,
            prompt_tokens=admit.prompt_tokens,
            tokens_max=admit.tokens_max,
            samples=admit.sampling is not None,
            page_runs=tuple((first, count) for first, count in page_runs(admit.pages)),
        )

    def advanced(self, computed_tokens: int) -> Resident:
        """The same request with so many tokens computed; what `replace` gives, in half the time."""
        return Resident(
            self.request_id,
            self.generation,
            self.pages,
            self.prompt_tokens,
            self.tokens_max,
            self.samples,
            self.page_runs,
            computed_tokens,
        )


@dataclass(frozen=True, slots=True)
class SlotTable:
    """slots[i]: holder of slot i. admissions: how many ever entered. next_step: the step due."""

    limits: PlanLimits
    slots: tuple[Resident | None, ...]
    admissions: int = 0
    next_step: int = 0

    @classmethod
    def empty(cls, limits: PlanLimits) -> SlotTable:
        return cls(limits, (None,) * limits.slots)

    def find(self, request_id: int) -> tuple[int, Resident] | None:
        """The slot and entry of a resident request."""
        for slot, resident in enumerate(self.slots):
            if resident is not None and resident.request_id == request_id:
                return slot, resident
        return None

    @property
    def residents(self) -> tuple[Resident, ...]:
        """The admitted requests, in order of slots."""
        return tuple(resident for resident in self.slots if resident is not None)

    def pages_in_use(self) -> frozenset[int]:
        return frozenset(page for resident in self.residents for page in resident.pages)

    @property
    def free_pages(self) -> int:
        return self.limits.pages - sum(len(resident.pages) for resident in self.residents)

    def digest(self) -> str:
        """SHA-256 over [slot, request, generation, computed tokens, page runs] of each resident."""
        rows = [
            [
                slot,
                entry.request_id,
                entry.generation,
                entry.computed_tokens,
                entry.page_runs,
            ]
            for slot, entry in enumerate(self.slots)
            if entry is not None
        ]
        return digest(rows)


def apply(plan: StepPlan, table: SlotTable) -> SlotTable:
    """The table after the plan: releases, admissions, moves, rows, in this order.

    Raises ContractError: `contract.program` when the plan leaves the limits, `contract.allocation`
    when it contradicts the table. The given table is unchanged either way.
    """
    check_bounds(plan, table.limits)
    _demand(plan.step == table.next_step, f"step {plan.step}", f"must be step {table.next_step}")
    draft = _Draft(table)
    for release in plan.releases:
        draft.release(release)
    for admit in plan.admissions:
        draft.admit(admit)
    for move in plan.moves:
        draft.move(move)
    for row in plan.rows:
        draft.advance(row)
    return SlotTable(table.limits, tuple(draft.slots), draft.admissions, table.next_step + 1)


def check(plan: StepPlan, table: SlotTable) -> None:
    """Raises what `apply` raises; changes nothing."""
    apply(plan, table)


def _demand(holds: bool, what: str, rule: str) -> None:
    if not holds:
        raise ContractError("allocation", f"{what}: {rule}")


class _Draft:
    """A private copy of a table while one plan is applied to it."""

    def __init__(self, table: SlotTable) -> None:
        self.slots = list(table.slots)
        self.admissions = table.admissions
        self._table = table
        # Built by the first admission of a plan; most plans have none.
        self._pages: set[int] | None = None
        self._released: set[int] = set()

    def _held_by(self, what: str, slot: int, request_id: int) -> Resident:
        resident = self.slots[slot]
        if resident is None or resident.request_id != request_id:
            holder = "nobody" if resident is None else f"request {resident.request_id}"
            raise ContractError(
                "allocation", f"{what} of request {request_id}: slot {slot} is held by {holder}"
            )
        return resident

    def release(self, release: Release) -> None:
        resident = self._held_by("release", release.slot, release.request_id)
        what = f"release of request {release.request_id}, generation {release.generation}"
        rule = f"must be generation {resident.generation}"
        _demand(release.generation == resident.generation, what, rule)
        self.slots[release.slot] = None
        self._released.update(resident.pages)

    def admit(self, admit: Admit) -> None:
        what = f"admission of request {admit.request_id}"
        _demand(self.slots[admit.slot] is None, what, f"slot {admit.slot} must be free")
        present = any(r is not None and r.request_id == admit.request_id for r in self.slots)
        _demand(not present, what, "must not be resident already")
        expected = self.admissions + 1
        _demand(admit.generation == expected, what, f"must have generation {expected}")
        if self._pages is None:
            self._pages = set(self._table.pages_in_use() - self._released)
        taken = [page for page in admit.pages if page in self._pages]
        _demand(not taken, what, f"pages {taken[:8]} must be free")
        self.slots[admit.slot] = Resident.of(admit)
        self.admissions = expected
        self._pages.update(admit.pages)

    def move(self, move: Move) -> None:
        resident = self._held_by("move", move.from_slot, move.request_id)
        what = f"move of request {move.request_id}"
        _demand(self.slots[move.to_slot] is None, what, f"slot {move.to_slot} must be free")
        self.slots[move.to_slot] = resident
        self.slots[move.from_slot] = None

    def advance(self, row: Row) -> None:
        resident = self._held_by("row", row.slot, row.request_id)
        computed = resident.computed_tokens
        end = computed + len(row.token_ids)
        if row.start_position != computed:
            raise _refused_row(row, f"must start at position {computed}")
        if end > resident.tokens_max:
            raise _refused_row(row, f"must end by position {resident.tokens_max}")
        if isinstance(row.artifact, Sample):
            if not resident.samples:
                raise _refused_row(row, "was admitted without sampling parameters")
            if end < resident.prompt_tokens:
                prompt = resident.prompt_tokens
                rule = f"must not sample before its {prompt} prompt tokens are computed"
                raise _refused_row(row, rule)
        self.slots[row.slot] = resident.advanced(end)


def _refused_row(row: Row, rule: str) -> ContractError:
    """Every step has rows, on every rank: words are made for one that is refused only."""
    what = f"row of request {row.request_id} from position {row.start_position}"
    return ContractError("allocation", f"{what}: {rule}")
