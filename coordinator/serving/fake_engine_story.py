"""What GET /v1/engine and /v1/engine/steps/{n} say of an engine that exists on paper alone.

Made for tests of the page: the same step number always gives the same numbers.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

MIB: Final = 1024 * 1024
LIMITS: Final = {
    "context_tokens": 1024,
    "page_tokens": 16,
    "pages": 256,
    "slots": 8,
    "tokens_per_step": 128,
    "vocab_size": 1024,
}
PREFILL_EVERY: Final = 9
SHOWN: Final = 60
PHASES: Final = ("plan", *(f"layer{n}.{part}" for n in range(4) for part in ("mixer", "mlp")))
FAILURE: Final = {
    "code": "deadline.receive",
    "message": "rank 1 sent nothing for 10000 ms in phase layer2.mlp",
    "rank": 1,
    "phase": "layer2.mlp",
    "errno": None,
    "errno_name": None,
    "step": 119,
}


def share(*key: object) -> float:
    """At least 0 and below 1: chance that depends on the key alone."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


def step_summary(step: int, ranks: int = 2) -> dict[str, Any]:
    """One entry of `steps`: every ninth step prefills."""
    prefill = 96 if step % PREFILL_EVERY == 0 else 0
    times = []
    busy = [
        4200 + 1600 * share(step, rank) + 9300 * bool(prefill) * (0.8 + 0.3 * share(step, rank, 1))
        for rank in range(ranks)
    ]
    slowest = max(busy)
    for rank in range(ranks):
        wire = 700 + 400 * share(step, rank, 2)
        compute = busy[rank]
        wait = slowest - compute + 250
        times.append({"compute_us": round(compute), "wait_us": round(wait), "wire_us": round(wire)})
    reduce = 380 + 160 * share(step, 3) + 900 * bool(prefill)
    return {
        "step": step,
        "at_s": 0.02 * step,
        "duration_us": round(slowest + 1400 + reduce),
        "rows": 4 + bool(prefill),
        "prefill_tokens": prefill,
        "decode_rows": 4,
        "reduce_us": round(reduce),
        "ranks": times,
    }


def step_detail(step: int, ranks: int = 2) -> dict[str, Any]:
    """The answer of /v1/engine/steps/{n}: spans and frames that fit the summary's times."""
    summary = step_summary(step, ranks)
    each = summary["duration_us"] / len(PHASES)
    spans: list[dict[str, Any]] = []
    frames: list[dict[str, Any]] = []
    for number, phase in enumerate(PHASES):
        begin = number * each
        spans += _phase_spans(step, phase, begin, each, ranks)
        for rank in range(ranks):
            frames.append(_frame(len(frames), "send", rank, phase, step))
            frames.append(_frame(len(frames), "receive", rank, phase, step))
    return {
        "step": step,
        "duration_us": summary["duration_us"],
        "spans": spans,
        "frames": frames,
    }


def _phase_spans(
    step: int, phase: str, begin: float, each: float, ranks: int
) -> list[dict[str, Any]]:
    spans = []

    def add(lane: str, kind: str, start: float, length: float) -> None:
        spans.append(
            {
                "lane": lane,
                "kind": kind,
                "phase": phase,
                "start_us": round(begin + start * each, 1),
                "duration_us": round(length * each, 1),
            }
        )

    for rank in range(ranks):
        wire = 0.06 + 0.05 * share(step, phase, rank)
        compute = 0.5 + 0.22 * share(step, phase, rank, 1)
        add(f"rank {rank}", "wire", 0.0, wire)
        add(f"rank {rank}", "compute", wire, compute)
        add(f"rank {rank}", "wait", wire + compute, 0.88 - wire - compute)
    add("coordinator", "reduce", 0.88, 0.1)
    return spans


def _frame(index: int, direction: str, rank: int, phase: str, step: int) -> dict[str, Any]:
    command = phase == "plan" and direction == "send"
    swing = 2 + share(step, phase, rank)
    statistics = {
        "min": -swing,
        "max": swing * 1.1,
        "mean": 0.01 * (share(step, phase, 5) - 0.5),
        "rms": 0.4 + 0.2 * share(step, phase, 6),
        "zeros": 0,
        "nonfinite": 0,
        "first": [round(share(step, phase, rank, 7, n) - 0.5, 6) for n in range(8)],
    }
    return {
        "index": index,
        "direction": direction,
        "rank": rank,
        "kind": "COMMAND" if command else ("REDUCTION" if direction == "send" else "PARTIAL"),
        "phase": phase,
        "tensor": None if command else f"{phase}.{'sum' if direction == 'send' else 'partial'}",
        "shape": None if command else [4, 192],
        "metadata_bytes": 214 if command else 96,
        "payload_bytes": 0 if command else 3072,
        "statistics": None if command else statistics,
    }


def _slot(request_id: int, slot: int, computed: int) -> dict[str, Any]:
    return {
        "computed_tokens": computed,
        "generation": 1 + request_id // 8,
        "pages": [[24 * slot, 18]],
        "prompt_tokens": 96,
        "request_id": request_id,
        "tokens_max": 287,
    }


def _ranks(ranks: int, phase: str, failed: int | None) -> list[dict[str, Any]]:
    loading = phase in {"loading", "starting", "restarting"}
    found = []
    for rank in range(ranks):
        gone = rank == failed and phase != "serving"
        state = "gone" if gone else ("loading" if loading else "ready")
        doing = "loading" if loading else ("compute", "wait")[rank % 2]
        due = 43 * MIB
        found.append(
            {
                "rank": rank,
                "pid": None if gone else 18201 + rank,
                "phase": state,
                "bytes_loaded": round(due * (0.62 - 0.09 * rank)) if loading else due,
                "bytes_due": due,
                "rss_bytes": None if gone else round((92.4 + 3.7 * rank) * MIB),
                "weights_bytes": None if loading else 31 * MIB,
                "state_bytes": None if loading else 12 * MIB,
                "last_seen_age_s": 12.4 if gone else 0.004 + 0.003 * rank,
                "doing": "failed" if gone else doing,
            }
        )
    return found


def engine(
    step: int,
    *,
    ranks: int = 2,
    phase: str = "serving",
    failure: dict[str, Any] | None = None,
    live: int = 5,
) -> dict[str, Any]:
    """The engine after so many steps. live: requests; at most four of them hold a slot."""
    running = min(live, 4)
    first = max(0, step - SHOWN + 1)
    slots: list[dict[str, Any] | None] = [None] * LIMITS["slots"]
    requests = []
    for request_id in range(live):
        computed = min(286, 24 * request_id + 31 + step % 150)
        if request_id < running:
            slots[request_id] = _slot(request_id, request_id, computed)
        requests.append(
            {
                "id": request_id,
                "state": "running" if request_id < running else "waiting",
                "prompt_tokens": 96,
                "computed_tokens": computed if request_id < running else 0,
                "completion_tokens": max(0, computed - 95) if request_id < running else 0,
                "max_tokens": 192,
            }
        )
    return {
        "model": "tiny-qwen35",
        "program": "qwen35/sharded",
        "world_size": ranks,
        "epoch": 1,
        "phase": phase,
        "failure": failure,
        "uptime_s": 3.1 + 0.02 * step,
        "progress_age_s": 0.011,
        "restarts": 0,
        "limits": LIMITS,
        "pages_free": LIMITS["pages"] - 18 * running,
        "slots": slots,
        "ranks": _ranks(ranks, phase, None if failure is None else failure["rank"]),
        "requests": requests,
        "steps": [step_summary(number, ranks) for number in range(first, step + 1)],
        "tokens_total": 4 * step,
    }
