"""The running engine as the page's JSON (docs/spec/http.md H41): one consistent look, no wait."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.engine import EngineSnapshot, RankStatus
from coordinator.service_state import failure_json, limits_json, slots_json
from coordinator.serving.served import Phase, RankLoad, RankPhase, Served, Status
from coordinator.serving.steps import StepLog
from program.slots import Resident, SlotTable

STEPS_SHOWN = 60


def engine_json(served: Served, log: StepLog) -> dict[str, object]:
    """GET /v1/engine. Lists are in order: ranks, slots, requests by arrival, steps by number."""
    status, now = served.status(), served.clock()
    snapshot = status.snapshot
    table = SlotTable.empty(served.limits) if snapshot is None else snapshot.scheduler.table
    failure = status.failure
    return {
        "model": served.model_id,
        "program": served.program,
        "world_size": len(status.ranks),
        "epoch": status.epoch,
        "phase": status.phase.value,
        "failure": None if failure is None else failure_json(failure),
        "uptime_s": _seconds(now - log.started_at),
        "progress_age_s": _seconds(now - status.progress_at),
        "restarts": status.restarts,
        "limits": limits_json(served.limits),
        "pages_free": table.free_pages,
        "slots": slots_json(table),
        "ranks": [_rank_json(status, load, log, now) for load in status.ranks],
        "requests": [] if snapshot is None else list(_requests_json(snapshot)),
        "steps": log.summaries(STEPS_SHOWN),
        "tokens_total": log.sampled,
    }


def _rank_json(status: Status, load: RankLoad, log: StepLog, now: float) -> dict[str, object]:
    known = _status_of(status.snapshot, load.rank)
    report = {} if known is None else known.load
    return {
        "rank": load.rank,
        "pid": load.pid,
        "phase": load.phase.value,
        "bytes_loaded": load.bytes_loaded,
        "bytes_due": load.bytes_due,
        "rss_bytes": load.rss_bytes,
        "weights_bytes": report.get("bytes_held"),
        "state_bytes": report.get("state_bytes"),
        "last_seen_age_s": None if load.last_seen is None else _seconds(now - load.last_seen),
        "doing": _doing(status, load, log),
    }


def _status_of(snapshot: EngineSnapshot | None, rank: int) -> RankStatus | None:
    ranks = () if snapshot is None else snapshot.ranks
    return next((status for status in ranks if status.rank == rank), None)


def _doing(status: Status, load: RankLoad, log: StepLog) -> str:
    """In a step what the timer says; else what the process is for."""
    failure = status.failure
    if failure is not None and failure.cause.rank == load.rank:
        return "failed"
    if load.phase is RankPhase.READY and status.phase in (Phase.SERVING, Phase.STOPPING):
        return log.doing(load.rank)
    return load.phase.value


def _requests_json(snapshot: EngineSnapshot) -> Iterator[dict[str, object]]:
    """Numbers follow from what a request asked for and from what its slot holds."""
    scheduler = snapshot.scheduler
    residents = {resident.request_id: resident for resident in scheduler.table.residents}
    waiting = dict(zip(scheduler.waiting, scheduler.submissions, strict=False))
    for request_id, state in scheduler.states:
        prompt = computed = completion = limit = None
        if request_id in residents:
            resident = residents[request_id]
            prompt, computed = resident.prompt_tokens, resident.computed_tokens
            completion = completion_tokens(resident)
            limit = resident.tokens_max - prompt + 1
        elif request_id in waiting:
            submission = waiting[request_id]
            prompt, computed, completion = len(submission.prompt_token_ids), 0, 0
            limit = submission.max_tokens
        yield {
            "id": request_id,
            "state": state.value,
            "prompt_tokens": prompt,
            "computed_tokens": computed,
            "completion_tokens": completion,
            "max_tokens": limit,
        }


def completion_tokens(resident: Resident) -> int:
    """Tokens made so far: the first by the prompt's last one, one more by each token fed back."""
    return max(0, resident.computed_tokens - resident.prompt_tokens + 1)


def _seconds(value: float) -> float:
    return round(max(0.0, value), 6)
