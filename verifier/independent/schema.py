"""Keys and types of the package's JSON (evidence.md E1, E4, E5): rules as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import matrix
from findings import shown

# A rule says what is wrong with a value, or None.
Rule = Callable[[Any], str | None]

MAX_COUNT = 2**40
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]\.[0-9]{3}e[+-][0-9]{2}")


def equal(wanted: Any) -> Rule:
    def rule(value: Any) -> str | None:
        same = type(value) is type(wanted) and value == wanted
        return None if same else f"must be {shown(wanted)}"

    return rule


def one_of(*wanted: Any) -> Rule:
    def rule(value: Any) -> str | None:
        same = any(type(value) is type(each) and value == each for each in wanted)
        return None if same else f"must be one of {wanted}"

    return rule


def integer(low: int, high: int = MAX_COUNT) -> Rule:
    def rule(value: Any) -> str | None:
        inside = type(value) is int and low <= value <= high
        return None if inside else f"must be an integer from {low} to {high}"

    return rule


def digest(value: Any) -> str | None:
    good = isinstance(value, str) and _DIGEST.fullmatch(value)
    return None if good else "must be 64 lower-case hex digits"


def number_string(value: Any) -> str | None:
    """E1: a finite number that is not negative, in the form of C's %.3e."""
    good = isinstance(value, str) and _NUMBER.fullmatch(value) and f"{float(value):.3e}" == value
    return None if good else "must be a string in the form of %.3e"


def text(value: Any) -> str | None:
    return None if isinstance(value, str) and len(value) <= 256 else "must be a string"


def optional(rule: Rule) -> Rule:
    return lambda value: None if value is None else rule(value)


def entries(key: Rule, value: Rule) -> Rule:
    """An object with any number of keys."""

    def rule(made: Any) -> str | None:
        if not isinstance(made, dict):
            return "must be an object"
        for name, each in made.items():
            fault = key(name)
            if fault is not None:
                return f"key {shown(name)}: {fault}"
            fault = value(each)
            if fault is not None:
                return f"{shown(name)}: {fault}"
        return None

    return rule


def record(keys: Mapping[str, Rule]) -> Rule:
    """An object with exactly these keys; the first fault in key order is named."""
    return lambda value: next(faults(value, keys), None)


def faults(value: Any, keys: Mapping[str, Rule]) -> Iterator[str]:
    """Everything wrong with an object that must have exactly these keys."""
    if not isinstance(value, dict):
        yield "must be an object"
        return
    for name in sorted(value.keys() ^ keys.keys()):
        yield f"key {shown(name)} is {'missing' if name in keys else 'not known'}"
    for name in sorted(value.keys() & keys.keys()):
        fault = keys[name](value[name])
        if fault is not None:
            yield f"{name} is {shown(value[name])}: {fault}"


def manifest_rules(case_count: int, ranks: tuple[int, ...]) -> dict[str, Rule]:
    """E4."""
    return {
        "schema": equal("rankproof.evidence/1"),
        "case_count": equal(case_count),
        "files": entries(text, record({"bytes": integer(0), "sha256": digest})),
        "program_digests": record({str(count): digest for count in ranks}),
        "source": record({"digest": digest, "files": entries(text, digest)}),
    }


_FAULT = record(
    {
        "kind": one_of(*matrix.FAULT_KINDS),
        "phase": one_of(*matrix.PHASES),
        "rank": integer(0, matrix.FAULT_RANKS - 1),
    }
)
_ERROR = record({"code": text, "phase": text, "rank": integer(0, matrix.FAULT_RANKS - 1)})

_CASE_RULES: dict[str, Rule] = {
    "case": text,
    "ranks": one_of(*matrix.RANKS),
    "batch": one_of(*matrix.BATCHES),
    "sequence": one_of(*matrix.SEQUENCES),
    "seed": one_of(*matrix.SEEDS),
    "sum_order": one_of(*matrix.ORDERS),
    "epoch": equal(matrix.EPOCH),
    "outcome": one_of(*matrix.OUTCOMES),
    "run_identity": digest,
    "frames_sent": integer(0),
    "frames_received": integer(0),
    "payload_bytes": integer(0),
    "header_bytes": integer(0),
    "metadata_bytes": integer(0),
    "ledger_sha256": digest,
    "tape_sha256": digest,
}
CLEAN_RULES = _CASE_RULES | {
    "fault": equal(None),
    "error": equal(None),
    "output_sha256": digest,
    "output_bytes": integer(0),
    "max_abs_error": number_string,
    "relative_l2_error": number_string,
}
FAULT_RULES = _CASE_RULES | {
    "fault": _FAULT,
    "error": _ERROR,
    "output_sha256": equal(None),
    "output_bytes": equal(None),
    "max_abs_error": equal(None),
    "relative_l2_error": equal(None),
}

_TEXT_OR_NULL = optional(text)
_COUNT_OR_NULL = optional(integer(0, 2**53))
LEDGER_RULES: dict[str, Rule] = {
    "index": integer(0),
    "direction": one_of("send", "receive"),
    "rank": integer(0, 65_535),
    "kind": _TEXT_OR_NULL,
    "flags": _COUNT_OR_NULL,
    "epoch": _COUNT_OR_NULL,
    "sequence": _COUNT_OR_NULL,
    "state": text,
    "phase": text,
    "tensor": _TEXT_OR_NULL,
    "shape": lambda value: (
        None if value is None or isinstance(value, list) else "must be an array or null"
    ),
    "metadata_bytes": _COUNT_OR_NULL,
    "payload_bytes": _COUNT_OR_NULL,
    "payload_sha256": optional(digest),
    "checksum": _COUNT_OR_NULL,
    "error": _TEXT_OR_NULL,
}


def case_rules(value: Mapping[str, Any]) -> dict[str, Rule]:
    """E5: the rules of the column that the record belongs to, by whether it names a fault."""
    return CLEAN_RULES if value.get("fault") is None else FAULT_RULES
