"""/livez, /readyz and /startupz: what is true now, with the first reason when something is wrong.

docs/spec/http.md H1 to H4.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coordinator.service_state import failure_json
from coordinator.serving.served import Phase, RankLoad, RankPhase, Served, Status

HEALTH_PATHS: Final = frozenset({"/livez", "/readyz", "/startupz"})
_NOT_CONNECTED: Final = {
    RankPhase.WAITING: "has not connected",
    RankPhase.LOADING: "is loading",
    RankPhase.STOPPED: "has a process that is stopped",
    RankPhase.GONE: "has no process any more",
}

Json = dict[str, object]


def health_routes(served: Served, has_served: Callable[[], bool]) -> list[Route]:
    """has_served: whether the first load has ended well."""

    async def livez(request: Request) -> Response:
        return answer(live(served.status(), served.clock()))

    async def readyz(request: Request) -> Response:
        return answer(ready(served.status(), served.clock()))

    async def startupz(request: Request) -> Response:
        return answer(started(served.status(), served.clock(), has_served()))

    handlers = {"/livez": livez, "/readyz": readyz, "/startupz": startupz}
    return [Route(path, handler, methods=["GET"]) for path, handler in handlers.items()]


def answer(page: Json) -> Response:
    """200 when the page says `ok`, 503 when it does not."""
    headers = {"cache-control": "no-store"}
    if not page["ok"]:
        headers["retry-after"] = "1"
    text = json.dumps(page, allow_nan=False)
    return Response(text, 200 if page["ok"] else 503, headers, media_type="application/json")


def live(status: Status, now: float) -> Json:
    """Whether this process is of any use; what it waits for is told elsewhere."""
    return {"ok": status.phase is not Phase.ENDED, **_common(status, now)}


def ready(status: Status, now: float) -> Json:
    """Whether a request would be served now."""
    reason = first_reason(status)
    connected = sum(rank.phase is RankPhase.READY for rank in status.ranks)
    return {
        "ok": reason is None,
        **_common(status, now),
        "reason": reason,
        "ranks_connected": connected,
        "world_size": len(status.ranks),
        "ranks": [_rank(rank, now) for rank in status.ranks],
    }


def started(status: Status, now: float, has_served: bool) -> Json:
    """Whether the first load has ended well; how far it is."""
    return {
        "ok": has_served,
        **_common(status, now),
        "reason": None if status.failure is None else failure_json(status.failure),
        "ranks": [
            {**_rank(rank, now), "bytes_loaded": rank.bytes_loaded, "bytes_due": rank.bytes_due}
            for rank in status.ranks
        ],
    }


def first_reason(status: Status) -> Json | None:
    """Why no request would be served now; None when one would."""
    if status.failure is not None:
        return failure_json(status.failure)
    if status.phase is not Phase.SERVING:
        return _reason(f"service.{status.phase.value}", f"the service is {status.phase.value}")
    for rank in status.ranks:
        if rank.phase is not RankPhase.READY:
            message = f"rank {rank.rank} {_NOT_CONNECTED[rank.phase]}"
            return _reason(f"rank.{rank.phase.value}", message, rank=rank.rank)
    return None


def _reason(code: str, message: str, rank: int | None = None) -> Json:
    unknown = dict.fromkeys(("phase", "errno", "errno_name", "step"))
    return {"code": code, "message": message, "rank": rank, **unknown}


def _common(status: Status, now: float) -> Json:
    return {
        "phase": status.phase.value,
        "epoch": status.epoch,
        "restarts": status.restarts,
        "progress_age_s": _age(status.progress_at, now),
    }


def _rank(rank: RankLoad, now: float) -> Json:
    return {
        "rank": rank.rank,
        "pid": rank.pid,
        "phase": rank.phase.value,
        "last_seen_age_s": None if rank.last_seen is None else _age(rank.last_seen, now),
    }


def _age(moment: float, now: float) -> float:
    return round(max(0.0, now - moment), 3)
