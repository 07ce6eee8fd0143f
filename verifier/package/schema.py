"""Keys and types of the package's JSON (docs/spec/evidence.md E1, E4, E5, E8), as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from evidence.matrix import (
    BATCHES,
    FAULT_CODES,
    FAULT_PHASES,
    FIRST_EPOCH,
    RANKS,
    SEEDS,
    SEQUENCES,
    SUM_ORDERS,
)
from evidence.package import SCHEMA
from evidence.summary import SCHEMA as SUMMARY_SCHEMA
from verifier.package.findings import shown

# From an outside value to the rule that it breaks, or None.
Rule = Callable[[object], str | None]

COUNT_MAX: Final = 1 << 40
TEXT_CHARACTERS_MAX: Final = 256
CASES: Final = 288
OUTCOMES: Final = ("ok", "protocol", "contract", "deadline")
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_SCIENTIFIC: Final = re.compile(r"[0-9]\.[0-9]{3}e[+-][0-9]{2}")


def one_of(*values: object) -> Rule:
    kept = {(type(value), value) for value in values}
    rule = f"must be one of {', '.join(map(repr, values))}"
    return lambda value: None if _hashable(value) in kept else rule


def _hashable(value: object) -> tuple[type, object]:
    return (type(value), value if isinstance(value, str | int | None) else None)


def is_null(value: object) -> str | None:
    return None if value is None else "must be null"


def is_count(value: object) -> str | None:
    good = type(value) is int and 0 <= value < COUNT_MAX
    return None if good else f"must be an integer from 0, below {COUNT_MAX}"


def is_text(value: object) -> str | None:
    good = isinstance(value, str) and len(value) <= TEXT_CHARACTERS_MAX
    return None if good else f"must be a string of at most {TEXT_CHARACTERS_MAX} characters"


def is_digest(value: object) -> str | None:
    good = isinstance(value, str) and _DIGEST.fullmatch(value)
    return None if good else "must be 64 lower-case hex digits"


def is_scientific(value: object) -> str | None:
    """E1: one spelling per number."""
    good = (
        isinstance(value, str) and _SCIENTIFIC.fullmatch(value) and f"{float(value):.3e}" == value
    )
    return None if good else "must be a number in the form of %.3e"


def list_of(rule: Rule) -> Rule:
    def check(value: object) -> str | None:
        if not isinstance(value, list):
            return "must be an array"
        return next((f"element: {broken}" for item in value if (broken := rule(item))), None)

    return check


def mapping(key: Rule, value: Rule) -> Rule:
    """An object with any keys of one form."""

    def check(made: object) -> str | None:
        if not isinstance(made, dict):
            return "must be an object"
        for name, item in made.items():
            broken = key(name) or value(item)
            if broken:
                return f"{shown(name)}: {broken}"
        return None

    return check


def record(rules: Mapping[str, Rule]) -> Rule:
    """An object with exactly these keys."""
    return lambda value: next(broken_rules(value, rules), None)


def broken_rules(value: object, rules: Mapping[str, Rule]) -> Iterator[str]:
    """Everything wrong with an object that must have exactly the keys of `rules`."""
    if not isinstance(value, dict):
        yield "must be an object"
        return
    for name in sorted(value.keys() | rules.keys()):
        if name not in value:
            yield f"{name} is missing"
        elif name not in rules:
            yield f"{shown(name)} is no key of it"
        elif broken := rules[name](value[name]):
            yield f"{name} = {shown(value[name])}: {broken}"


MANIFEST_RULES: Final[dict[str, Rule]] = {
    "case_count": one_of(CASES),
    "files": mapping(is_text, record({"bytes": is_count, "sha256": is_digest})),
    "program_digests": record({str(ranks): is_digest for ranks in RANKS}),
    "schema": one_of(SCHEMA),
    "source": record({"digest": is_digest, "files": mapping(is_text, is_digest)}),
}

_RANK: Final = one_of(*range(max(RANKS)))
_EVERY_CASE: Final[dict[str, Rule]] = {
    "batch": one_of(*BATCHES),
    "case": is_text,
    "epoch": one_of(FIRST_EPOCH),
    "frames_received": is_count,
    "frames_sent": is_count,
    "header_bytes": is_count,
    "ledger_sha256": is_digest,
    "metadata_bytes": is_count,
    "outcome": one_of(*OUTCOMES),
    "payload_bytes": is_count,
    "ranks": one_of(*RANKS),
    "run_identity": is_digest,
    "seed": one_of(*SEEDS),
    "sequence": one_of(*SEQUENCES),
    "sum_order": one_of(*SUM_ORDERS),
    "tape_sha256": is_digest,
}
CLEAN_RULES: Final[dict[str, Rule]] = {
    **_EVERY_CASE,
    "error": is_null,
    "fault": is_null,
    "max_abs_error": is_scientific,
    "output_bytes": is_count,
    "output_sha256": is_digest,
    "relative_l2_error": is_scientific,
}
FAULT_RULES: Final[dict[str, Rule]] = {
    **_EVERY_CASE,
    "error": record({"code": is_text, "phase": is_text, "rank": _RANK}),
    "fault": record({"kind": one_of(*FAULT_CODES), "phase": one_of(*FAULT_PHASES), "rank": _RANK}),
    "max_abs_error": is_null,
    "output_bytes": is_null,
    "output_sha256": is_null,
    "relative_l2_error": is_null,
}


def case_rules(value: Mapping[str, Any]) -> dict[str, Rule]:
    """The column of E5 that a record belongs to: that of fault cases when it names a fault."""
    return CLEAN_RULES if value.get("fault") is None else FAULT_RULES


_BYTES: Final = ("header_bytes", "metadata_bytes", "payload_bytes")
_ERRORS: Final[dict[str, Rule]] = {
    "max_abs_error": is_scientific,
    "relative_l2_error": is_scientific,
}
SUMMARY_RULES: Final[dict[str, Rule]] = {
    "cases": record(dict.fromkeys(("clean", "fault", "total"), is_count)),
    "clean": record({**_ERRORS, **dict.fromkeys(("frames", *_BYTES), is_count)}),
    "clean_by": record(
        {
            f"r{ranks}-{order}": record({**_ERRORS, "cases": is_count, "payload_bytes": is_count})
            for ranks in RANKS
            for order in SUM_ORDERS
        }
    ),
    "faults": record(
        {
            kind: record({"cases": is_count, "codes": list_of(is_text), "outcome": is_text})
            for kind in FAULT_CODES
        }
    ),
    "invariance": record({"groups": is_count, "identical": is_count}),
    "ledger_entries": is_count,
    "outcomes": record(dict.fromkeys(OUTCOMES, is_count)),
    "schema": one_of(SUMMARY_SCHEMA),
    "tape_bytes": is_count,
}
