"""The package's summary: everything in it is recomputed from the cases (E8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from evidence.matrix import BATCHES, FAULT_CODES, RANKS, SEEDS, SEQUENCES, SUM_ORDERS
from wire.canonical import JsonObject, JsonValue

SCHEMA: Final = "rankproof.evidence.summary/1"
Record = Mapping[str, Any]


def largest(values: Iterable[str]) -> str:
    """The error string with the largest value."""
    return max(values, key=float)


def _clean(records: Sequence[Record]) -> JsonObject:
    return {
        "frames": sum(r["frames_sent"] + r["frames_received"] for r in records),
        "header_bytes": sum(r["header_bytes"] for r in records),
        "max_abs_error": largest(r["max_abs_error"] for r in records),
        "metadata_bytes": sum(r["metadata_bytes"] for r in records),
        "payload_bytes": sum(r["payload_bytes"] for r in records),
        "relative_l2_error": largest(r["relative_l2_error"] for r in records),
    }


def _clean_by(records: Sequence[Record]) -> JsonObject:
    groups: dict[str, JsonValue] = {}
    for ranks in RANKS:
        for order in SUM_ORDERS:
            group = [r for r in records if (r["ranks"], r["sum_order"]) == (ranks, order)]
            groups[f"r{ranks}-{order}"] = {
                "cases": len(group),
                "max_abs_error": largest(r["max_abs_error"] for r in group),
                "payload_bytes": sum(r["payload_bytes"] for r in group),
                "relative_l2_error": largest(r["relative_l2_error"] for r in group),
            }
    return groups


def _faults(records: Sequence[Record]) -> JsonObject:
    kinds: dict[str, JsonValue] = {}
    for kind in FAULT_CODES:
        group = [r for r in records if r["fault"]["kind"] == kind]
        kinds[kind] = {
            "cases": len(group),
            "codes": sorted({r["error"]["code"] for r in group}),
            "outcome": ",".join(sorted({r["outcome"] for r in group})),
        }
    return kinds


def invariant_groups(records: Sequence[Record]) -> int:
    """Groups (B, T, S) whose pairwise outputs are the same bytes for every rank count."""
    digests = {
        (r["batch"], r["sequence"], r["seed"], r["ranks"]): r["output_sha256"]
        for r in records
        if r["fault"] is None and r["sum_order"] == "pairwise"
    }
    return sum(
        len({digests[b, t, s, ranks] for ranks in RANKS}) == 1
        for b in BATCHES
        for t in SEQUENCES
        for s in SEEDS
    )


def summarize(records: Sequence[Record], ledger_entries: int, tape_bytes: int) -> JsonObject:
    """The summary of a whole package: `records` are all 288 lines of cases.jsonl."""
    clean = [r for r in records if r["fault"] is None]
    faults = [r for r in records if r["fault"] is not None]
    outcomes = Counter(r["outcome"] for r in records)
    return {
        "cases": {"clean": len(clean), "fault": len(faults), "total": len(records)},
        "clean": _clean(clean),
        "clean_by": _clean_by(clean),
        "faults": _faults(faults),
        "invariance": {
            "groups": len(BATCHES) * len(SEQUENCES) * len(SEEDS),
            "identical": invariant_groups(records),
        },
        "ledger_entries": ledger_entries,
        "outcomes": {name: outcomes[name] for name in ("contract", "deadline", "ok", "protocol")},
        "schema": SCHEMA,
        "tape_bytes": tape_bytes,
    }
