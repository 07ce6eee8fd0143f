"""What exists, as JSON and as a page: the only proof of a clean-up that needs no trust.

Read-only. The JSON is specified in docs/spec/service.md V5. It must not know sockets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from coordinator.engine import EngineSnapshot, Failure, RankStatus
from errors import PeerError
from program.plan import PlanLimits
from program.slots import Resident, SlotTable


def state_json(snapshot: EngineSnapshot) -> dict[str, object]:
    """V5. Every list is in order: slots, ranks, requests by arrival."""
    table = snapshot.scheduler.table
    failure = snapshot.failure
    return {
        "failure": None
        if failure is None
        else {"cause": _cause_json(failure.cause), "step": failure.step},
        "in_flight": snapshot.scheduler.in_flight,
        "limits": limits_json(table.limits),
        "pages_free": table.free_pages,
        "ranks": [_rank_json(rank) for rank in snapshot.ranks],
        "requests": [
            {"request_id": request_id, "state": state.value}
            for request_id, state in snapshot.scheduler.states
        ],
        "slots": slots_json(table),
        "state_digest": table.digest(),
        "steps": snapshot.steps,
        "stopping": snapshot.stopping,
    }


def limits_json(limits: PlanLimits) -> dict[str, object]:
    """What a request may need, and what there is for all."""
    return {
        "context_tokens": limits.context_tokens,
        "page_tokens": limits.page_tokens,
        "pages": limits.pages,
        "slots": limits.slots,
        "tokens_per_step": limits.tokens_per_step,
        "vocab_size": limits.vocab_size,
    }


def failure_json(failure: Failure) -> dict[str, object]:
    """A failure in one object, as docs/spec/http.md H3 has it.

    step: null when it came between steps, or while the ranks were loading.
    """
    return _cause_json(failure.cause) | {"step": failure.step}


def _cause_json(cause: PeerError) -> dict[str, object]:
    return {
        "code": cause.code,
        "message": cause.message,
        "rank": cause.rank,
        "phase": cause.phase,
        "errno": cause.errno,
        "errno_name": cause.errno_name,
    }


def _rank_json(rank: RankStatus) -> dict[str, object]:
    return {
        "hidden_digest": rank.hidden_digest,
        "load": dict(rank.load),
        "pid": rank.pid,
        "rank": rank.rank,
        "state_digest": rank.state_digest,
    }


def slots_json(table: SlotTable) -> list[dict[str, object] | None]:
    """One entry per slot, null where it is free."""
    return [None if holder is None else _resident_json(holder) for holder in table.slots]


def _resident_json(holder: Resident) -> dict[str, object]:
    return {
        "computed_tokens": holder.computed_tokens,
        "generation": holder.generation,
        "pages": [list(run) for run in holder.page_runs],
        "prompt_tokens": holder.prompt_tokens,
        "request_id": holder.request_id,
        "tokens_max": holder.tokens_max,
    }


def render_state(state: Mapping[str, object]) -> str:
    """V5's JSON as a page for a person."""
    limits = cast(Mapping[str, int], state["limits"])
    requests = cast(Sequence[Mapping[str, object]], state["requests"])
    counts: dict[str, int] = {}
    for request in requests:
        name = str(request["state"])
        counts[name] = counts.get(name, 0) + 1
    slots = cast(Sequence[Mapping[str, object] | None], state["slots"])
    held = sum(slot is not None for slot in slots)
    pages_held = limits["pages"] - cast(int, state["pages_free"])
    lines = [
        f"condition  {_condition(state)}",
        f"steps      {state['steps']} complete, {_running(state)}",
        "requests   " + (", ".join(f"{n} {name}" for name, n in counts.items()) or "none"),
        f"slots      {held} of {limits['slots']} held",
        f"pages      {pages_held} of {limits['pages']} held, {limits['page_tokens']} tokens each",
    ]
    lines += [_slot_line(index, slot) for index, slot in enumerate(slots) if slot is not None]
    lines += [_rank_line(rank) for rank in cast(Sequence[Mapping[str, object]], state["ranks"])]
    return "\n".join(lines) + "\n"


def _condition(state: Mapping[str, object]) -> str:
    failure = cast(Mapping[str, object] | None, state["failure"])
    if failure is None:
        return "stopping" if state["stopping"] else "serving"
    cause = cast(Mapping[str, object], failure["cause"])
    when = "between steps" if failure["step"] is None else f"in step {failure['step']}"
    where = f"rank {cause['rank']}, phase {cause['phase']}"
    errno = cause["errno"]
    said = "" if errno is None else f" ({cause['errno_name']}, errno {errno})"
    return f"failed {when}: {where}: {cause['code']}: {cause['message']}{said}"


def _running(state: Mapping[str, object]) -> str:
    return "none running" if state["in_flight"] is None else f"step {state['in_flight']} running"


def _slot_line(index: int, slot: Mapping[str, object]) -> str:
    return (
        f"  slot {index}: request {slot['request_id']}, generation {slot['generation']}, "
        f"{slot['computed_tokens']} of {slot['tokens_max']} tokens, pages {slot['pages']}"
    )


def _rank_line(rank: Mapping[str, object]) -> str:
    load = cast(Mapping[str, object], rank["load"])
    digest = str(rank["state_digest"] or "none")[:16]
    return (
        f"  rank {rank['rank']}: pid {rank['pid']}, weights {load.get('bytes_held')} bytes, "
        f"state {load.get('state_bytes')} bytes, state digest {digest}"
    )
