"""How many requests fit: bytes per rank, from the program's final rank-local shapes.

On each rank
    free         = memory - weights - scratch - reserve
    slots_r      = min(max_batch, free // (slot_bytes + pages_per_slot_min * page_bytes))
    slots        = minimum of slots_r over ranks
    pages_r      = min((free - slots * slot_bytes) // page_bytes, slots * pages of the context)
    pages        = minimum of pages_r over ranks
with slot_bytes the recurrent and convolution state of one request and page_bytes the keys and
values of page_tokens positions. Every rank allocates `slots` and `pages`, so the advertised
capacity is the allocated one. Scratch is bounded by the tokens of a step, never by a prompt.

It must not know arrays: the executors allocate exactly these bytes and compare (docs/spec/plan.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from errors import ConfigError, ConfigProblem
from program.plan import INTEGER_MAX, SLOTS_MAX, PlanLimits, pages_needed, tokens_per_step_max
from program.spec import ProgramSpec, StateScope


@dataclass(frozen=True)
class CapacityInput:
    """What the deployment decides.

    rank_memory_bytes: one budget per rank; they may differ. weight_item_bytes: bytes per element
    as held, by weight name, every weight of the program. scratch_bytes: what the executor needs
    beside weights and state for a step of step_tokens tokens. reserve_bytes: left untouched.
    pages_per_slot_min: fewer pages per slot than this are not worth a slot.
    """

    rank_memory_bytes: tuple[int, ...]
    weight_item_bytes: Mapping[str, int]
    vocab_size: int
    context_tokens: int
    max_batch: int
    step_tokens: int
    page_tokens: int
    scratch_bytes: int
    reserve_bytes: int
    pages_per_slot_min: int = 1


@dataclass(frozen=True)
class RankBudget:
    """One rank's bytes. slots, pages: what this rank alone could hold."""

    rank: int
    memory_bytes: int
    weight_bytes: int
    scratch_bytes: int
    reserve_bytes: int
    slot_bytes: int
    page_bytes: int
    slots: int
    pages: int

    @property
    def free_bytes(self) -> int:
        fixed = self.weight_bytes + self.scratch_bytes + self.reserve_bytes
        return self.memory_bytes - fixed


@dataclass(frozen=True)
class Capacity:
    """limits: what all ranks can serve (the minimum over ranks). ranks: how it came about."""

    limits: PlanLimits
    ranks: tuple[RankBudget, ...]

    def state_bytes(self, rank: int) -> int:
        """Bytes of the arenas that `rank` allocates: all slots and all pages."""
        budget = self.ranks[rank]
        return self.limits.slots * budget.slot_bytes + self.limits.pages * budget.page_bytes

    def unused_bytes(self, rank: int) -> int:
        """What remains of the rank's budget after weights, scratch, reserve and arenas."""
        return self.ranks[rank].free_bytes - self.state_bytes(rank)


def weight_bytes(spec: ProgramSpec, rank: int, item_bytes: Mapping[str, int]) -> int:
    """Bytes of the rank-local slices of all weights. Raises ConfigError for an unknown width."""
    total = 0
    for weight in spec.weights:
        if weight.name not in item_bytes:
            raise ConfigError.single(
                "weight_item_bytes", weight.name, "must name every weight", "config.capacity"
            )
        total += prod(weight.local_shape(rank, spec.world_size)) * item_bytes[weight.name]
    return total


def slot_bytes(spec: ProgramSpec) -> int:
    """Recurrent and convolution state of one request on one rank."""
    return sum(state.local_bytes for state in spec.state if state.scope is StateScope.SLOT)


def page_bytes(spec: ProgramSpec, page_tokens: int) -> int:
    """Keys and values of one page on one rank."""
    per_token = sum(state.local_bytes for state in spec.state if state.scope is StateScope.TOKEN)
    return per_token * page_tokens


def plan_capacity(spec: ProgramSpec, given: CapacityInput) -> Capacity:
    """Slots and pages that every rank can hold. Raises ConfigError `config.capacity`."""
    _check_input(spec, given)
    budgets = [_rank_budget(spec, given, rank) for rank in range(spec.world_size)]
    slots = min(budget.slots for budget in budgets)
    context_pages = pages_needed(given.context_tokens, given.page_tokens)
    ranks = tuple(_with_pages(budget, slots, context_pages) for budget in budgets)
    limits = PlanLimits(
        vocab_size=given.vocab_size,
        context_tokens=given.context_tokens,
        slots=slots,
        pages=min(budget.pages for budget in ranks),
        page_tokens=given.page_tokens,
        tokens_per_step=given.step_tokens,
    )
    return Capacity(limits, ranks)


def _check_input(spec: ProgramSpec, given: CapacityInput) -> None:
    problems: list[ConfigProblem] = []
    ranks = len(given.rank_memory_bytes)
    if ranks != spec.world_size:
        rule = f"must have {spec.world_size} entries, one per rank"
        problems.append(ConfigProblem("rank_memory_bytes", str(ranks), rule))
    step_tokens_max = tokens_per_step_max(spec.hidden_size, spec.partial_dtype.item_bytes)
    ranges = {
        "max_batch": (1, SLOTS_MAX),
        "step_tokens": (1, step_tokens_max),
        "page_tokens": (1, INTEGER_MAX),
        "context_tokens": (1, INTEGER_MAX),
        "pages_per_slot_min": (1, INTEGER_MAX),
        "scratch_bytes": (0, INTEGER_MAX),
        "reserve_bytes": (0, INTEGER_MAX),
    }
    for field, (low, high) in ranges.items():
        value = getattr(given, field)
        if not low <= value <= high:
            rule = f"must be at least {low} and at most {high}"
            problems.append(ConfigProblem(field, str(value), rule))
    if problems:
        raise ConfigError(problems, "config.capacity")


def _rank_budget(spec: ProgramSpec, given: CapacityInput, rank: int) -> RankBudget:
    budget = RankBudget(
        rank=rank,
        memory_bytes=given.rank_memory_bytes[rank],
        weight_bytes=weight_bytes(spec, rank, given.weight_item_bytes),
        scratch_bytes=given.scratch_bytes,
        reserve_bytes=given.reserve_bytes,
        slot_bytes=slot_bytes(spec),
        page_bytes=page_bytes(spec, given.page_tokens),
        slots=0,
        pages=0,
    )
    per_slot = budget.slot_bytes + given.pages_per_slot_min * budget.page_bytes
    slots = (
        given.max_batch if per_slot == 0 else min(given.max_batch, budget.free_bytes // per_slot)
    )
    if budget.free_bytes < 0 or slots < 1:
        rule = (
            f"rank {rank} must hold {budget.weight_bytes} bytes of weights, {budget.scratch_bytes} "
            f"of scratch, {budget.reserve_bytes} of reserve and {per_slot} for one request"
        )
        field = f"rank_memory_bytes[{rank}]"
        raise ConfigError.single(field, budget.memory_bytes, rule, "config.capacity")
    return replace(budget, slots=slots)


def _with_pages(budget: RankBudget, slots: int, context_pages: int) -> RankBudget:
    useful = slots * context_pages
    if budget.page_bytes == 0:
        return replace(budget, pages=useful)
    room = (budget.free_bytes - slots * budget.slot_bytes) // budget.page_bytes
    return replace(budget, pages=min(room, useful))
