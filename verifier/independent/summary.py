"""The summary (evidence.md E8), recomputed from the case records and the files they describe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import canonical
import matrix
from bundle import Bundle

Record = dict[str, Any]


def recompute(bundle: Bundle) -> dict[str, Any]:
    """The summary that the package should have.

    Cases of the matrix without a usable record are left out here and are findings of other checks.
    """
    records = list(bundle.by_name().values())
    clean = [each for each in records if each["fault"] is None]
    fault = [each for each in records if each["fault"] is not None]
    measured = bundle.measured.values()
    groups = invariance_groups(bundle)
    return {
        "schema": "rankproof.evidence.summary/1",
        "cases": {"clean": len(clean), "fault": len(fault), "total": len(records)},
        "outcomes": {
            outcome: sum(each["outcome"] == outcome for each in records)
            for outcome in matrix.OUTCOMES
        },
        "clean": {
            "frames": sum(each["frames_sent"] + each["frames_received"] for each in clean),
            "header_bytes": _total(clean, "header_bytes"),
            "metadata_bytes": _total(clean, "metadata_bytes"),
            "payload_bytes": _total(clean, "payload_bytes"),
            **_worst(clean),
        },
        "clean_by": _clean_by(clean),
        "faults": _faults(fault),
        "invariance": {"groups": len(groups), "identical": sum(same for _, same in groups)},
        "ledger_entries": sum(each.ledger_entries for each in measured),
        "tape_bytes": sum(each.tape_bytes for each in measured),
    }


def invariance_groups(bundle: Bundle) -> list[tuple[str, bool]]:
    """Each (B, T, S), and whether its `pairwise` outputs are equal at all world sizes."""
    groups: dict[tuple[int, int, int], list[bytes | None]] = {}
    for case in bundle.matrix.values():
        if case.fault is None and case.sum_order == "pairwise":
            measured = bundle.measured.get(case.name)
            outputs = groups.setdefault((case.batch, case.sequence, case.seed), [])
            outputs.append(None if measured is None else measured.output)
    return [
        (f"b{batch}-t{sequence}-s{seed}", None not in outputs and len(set(outputs)) == 1)
        for (batch, sequence, seed), outputs in groups.items()
    ]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and text of every leaf of a summary, objects in key order (E9)."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from leaves(value[key], f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield path, ", ".join(map(str, value))
    else:
        yield path, str(value)


def differences(got: Any, wanted: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ, with both values; a missing key counts as None."""
    if isinstance(got, dict) and isinstance(wanted, dict):
        for key in sorted(got.keys() | wanted.keys()):
            inner = f"{path}.{key}" if path else key
            if key not in got or key not in wanted:
                yield inner, got.get(key), wanted.get(key)
            else:
                yield from differences(got[key], wanted[key], inner)
    elif canonical.encode(got) != canonical.encode(wanted):
        yield path, got, wanted


def _total(records: Iterable[Record], key: str) -> int:
    return sum(each[key] for each in records)


def _worst(records: Iterable[Record]) -> dict[str, str]:
    """The errors as maxima; E8: of error strings the one with the largest value."""
    listed = list(records)
    return {
        key: max((each[key] for each in listed), key=float, default="0.000e+00")
        for key in ("max_abs_error", "relative_l2_error")
    }


def _clean_by(clean: Iterable[Record]) -> dict[str, Any]:
    groups: dict[str, list[Record]] = {}
    for each in clean:
        groups.setdefault(f"r{each['ranks']}-{each['sum_order']}", []).append(each)
    return {
        name: {
            "cases": len(members),
            "payload_bytes": _total(members, "payload_bytes"),
            **_worst(members),
        }
        for name, members in groups.items()
    }


def _faults(fault: Iterable[Record]) -> dict[str, Any]:
    """Per fault kind: count, codes, outcome. Mixed outcomes are joined, which no summary may be."""
    groups: dict[str, list[Record]] = {}
    for each in fault:
        groups.setdefault(each["fault"]["kind"], []).append(each)
    return {
        kind: {
            "cases": len(members),
            "codes": sorted({each["error"]["code"] for each in members}),
            "outcome": "+".join(sorted({each["outcome"] for each in members})),
        }
        for kind, members in groups.items()
    }
