"""A plan as JSON values and back (docs/spec/plan.md, L3 to L8).

Reading trusts nothing: exact keys, exact types, and page runs bounded by the agreed number of pages
before they are expanded. What the numbers mean is checked by `plan_bounds` and `slots`.

JSON metadata has no floats, so a real parameter travels as the hexadecimal spelling of its float64
(`float.hex`), which is exact and has one spelling per value; a seed as 16 hexadecimal digits; pages
as maximal runs [first, count], so a long context costs few bytes while the pool has no holes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from errors import ContractError
from program.canonical import canonical_json, digest
from program.plan import (
    INTEGER_MAX,
    Admit,
    Artifact,
    Move,
    PlanLimits,
    Release,
    Row,
    Sample,
    Sampling,
    Score,
    StepPlan,
)

_Item = TypeVar("_Item")
_HEX_FLOAT: Final = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}", re.ASCII)
_SEED: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_REAL_FIELDS: Final = (
    "frequency_penalty",
    "min_p",
    "presence_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
)


def page_runs(pages: Iterable[int]) -> list[list[int]]:
    """Strictly ascending page numbers as maximal runs [first, count]."""
    runs: list[list[int]] = []
    for page in pages:
        if runs and page == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([page, 1])
    return runs


def encode_plan(plan: StepPlan) -> dict[str, object]:
    """The JSON object of a plan; its canonical bytes are what every rank receives."""
    return {
        "admissions": [encode_entry(admit) for admit in plan.admissions],
        "moves": [encode_entry(move) for move in plan.moves],
        "releases": [encode_entry(release) for release in plan.releases],
        "rows": [encode_entry(row) for row in plan.rows],
        "step": plan.step,
    }


def encode_entry(entry: Release | Admit | Move | Row) -> dict[str, object]:
    """The JSON object of one entry of a plan."""
    match entry:
        case Release(slot, request_id, generation):
            return {"generation": generation, "request_id": request_id, "slot": slot}
        case Move(from_slot, to_slot, request_id):
            return {"from_slot": from_slot, "request_id": request_id, "to_slot": to_slot}
        case Row(request_id, slot, start_position, token_ids, artifact):
            return {
                "artifact": _encode_artifact(artifact),
                "request_id": request_id,
                "slot": slot,
                "start_position": start_position,
                "token_ids": list(token_ids),
            }
        case Admit():
            return {
                "generation": entry.generation,
                "pages": page_runs(entry.pages),
                "prompt_tokens": entry.prompt_tokens,
                "request_id": entry.request_id,
                "sampling": None if entry.sampling is None else _encode_sampling(entry.sampling),
                "slot": entry.slot,
                "tokens_max": entry.tokens_max,
            }


def entry_bytes(entry: Release | Admit | Move | Row) -> int:
    """Bytes that the entry adds to a plan's canonical JSON, with the comma that separates it."""
    return len(canonical_json(encode_entry(entry))) + 1


def plan_digest(plan: StepPlan) -> str:
    """SHA-256 of the plan's canonical bytes, 64 hexadecimal digits."""
    return digest(encode_plan(plan))


def decode_plan(value: object, limits: PlanLimits) -> StepPlan:
    """The plan that `value` spells. Raises ContractError `contract.metadata`."""
    plan = _object(value, ("admissions", "moves", "releases", "rows", "step"), "plan")
    return StepPlan(
        step=_integer(plan["step"], "plan.step"),
        releases=_entries(plan, "releases", _release),
        admissions=_entries(plan, "admissions", lambda v, at: _admit(v, at, limits)),
        moves=_entries(plan, "moves", _move),
        rows=_entries(plan, "rows", _row),
    )


def _encode_artifact(artifact: Artifact | None) -> dict[str, object] | None:
    match artifact:
        case None:
            return None
        case Sample(logprobs):
            return {"logprobs": logprobs}
        case Score(last, top):
            return {"last": last, "top": top}


def _encode_sampling(sampling: Sampling) -> dict[str, object]:
    reals = {name: float(getattr(sampling, name)).hex() for name in _REAL_FIELDS}
    return {
        **reals,
        "logit_bias": [[token_id, float(bias).hex()] for token_id, bias in sampling.logit_bias],
        "seed": f"{sampling.seed:016x}",
        "top_k": sampling.top_k,
    }


def _refuse(at: str, value: object, rule: str) -> ContractError:
    return ContractError("metadata", f"{at} = {str(value)[:80]}: {rule}")


def _object(value: object, keys: tuple[str, ...], at: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _refuse(at, value, "must be an object")
    for key in sorted(keys):
        if key not in value:
            raise _refuse(f"{at}.{key}", "missing", "must be present")
    for key in value:
        if key not in keys:
            raise _refuse(f"{at}.{key}", value[key], "is no key of this object")
    return value


def _array(value: object, at: str) -> list[object]:
    if not isinstance(value, list):
        raise _refuse(at, value, "must be an array")
    return value


def _integer(value: object, at: str) -> int:
    if type(value) is not int or not 0 <= value <= INTEGER_MAX:
        raise _refuse(at, value, "must be an integer of at least 0 and below 2^53")
    return value


def _real(value: object, at: str) -> float:
    if not isinstance(value, str) or _HEX_FLOAT.fullmatch(value) is None:
        raise _refuse(at, value, "must be a string in the form of float.hex")
    try:
        number = float.fromhex(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number.hex() != value:
        raise _refuse(at, value, "must be the canonical spelling of a finite float64")
    return number


def _entries(
    plan: dict[str, object], key: str, read: Callable[[object, str], _Item]
) -> tuple[_Item, ...]:
    items = _array(plan[key], f"plan.{key}")
    return tuple(read(item, f"plan.{key}[{i}]") for i, item in enumerate(items))


def _release(value: object, at: str) -> Release:
    item = _object(value, ("generation", "request_id", "slot"), at)
    return Release(
        slot=_integer(item["slot"], f"{at}.slot"),
        request_id=_integer(item["request_id"], f"{at}.request_id"),
        generation=_integer(item["generation"], f"{at}.generation"),
    )


def _move(value: object, at: str) -> Move:
    item = _object(value, ("from_slot", "request_id", "to_slot"), at)
    return Move(
        from_slot=_integer(item["from_slot"], f"{at}.from_slot"),
        to_slot=_integer(item["to_slot"], f"{at}.to_slot"),
        request_id=_integer(item["request_id"], f"{at}.request_id"),
    )


def _row(value: object, at: str) -> Row:
    item = _object(value, ("artifact", "request_id", "slot", "start_position", "token_ids"), at)
    tokens = _array(item["token_ids"], f"{at}.token_ids")
    return Row(
        request_id=_integer(item["request_id"], f"{at}.request_id"),
        slot=_integer(item["slot"], f"{at}.slot"),
        start_position=_integer(item["start_position"], f"{at}.start_position"),
        token_ids=tuple(_integer(token, f"{at}.token_ids") for token in tokens),
        artifact=_artifact(item["artifact"], f"{at}.artifact"),
    )


def _artifact(value: object, at: str) -> Artifact | None:
    if value is None:
        return None
    if isinstance(value, dict) and "logprobs" in value:
        logprobs = _object(value, ("logprobs",), at)["logprobs"]
        return Sample(None if logprobs is None else _integer(logprobs, f"{at}.logprobs"))
    item = _object(value, ("last", "top"), at)
    return Score(_integer(item["last"], f"{at}.last"), _integer(item["top"], f"{at}.top"))


def _admit(value: object, at: str, limits: PlanLimits) -> Admit:
    keys = (
        "generation",
        "pages",
        "prompt_tokens",
        "request_id",
        "sampling",
        "slot",
        "tokens_max",
    )
    item = _object(value, keys, at)
    return Admit(
        slot=_integer(item["slot"], f"{at}.slot"),
        request_id=_integer(item["request_id"], f"{at}.request_id"),
        generation=_integer(item["generation"], f"{at}.generation"),
        pages=_pages(item["pages"], f"{at}.pages", limits.pages),
        prompt_tokens=_integer(item["prompt_tokens"], f"{at}.prompt_tokens"),
        tokens_max=_integer(item["tokens_max"], f"{at}.tokens_max"),
        sampling=_sampling(item["sampling"], f"{at}.sampling"),
    )


def _pages(value: object, at: str, pages_total: int) -> tuple[int, ...]:
    pages: list[int] = []
    free_from = 0
    for item in _array(value, at):
        run = _array(item, at)
        if len(run) != 2:
            raise _refuse(at, run, "must be runs [first page, count]")
        first, count = _integer(run[0], at), _integer(run[1], at)
        if count == 0 or first < free_from or first + count > pages_total:
            rule = f"must be non-empty, ascending, maximal runs within {pages_total} pages"
            raise _refuse(at, run, rule)
        pages.extend(range(first, first + count))
        free_from = first + count + 1
    return tuple(pages)


def _sampling(value: object, at: str) -> Sampling | None:
    if value is None:
        return None
    item = _object(value, (*_REAL_FIELDS, "logit_bias", "seed", "top_k"), at)
    reals = {name: _real(item[name], f"{at}.{name}") for name in _REAL_FIELDS}
    seed = item["seed"]
    if not isinstance(seed, str) or _SEED.fullmatch(seed) is None:
        raise _refuse(f"{at}.seed", seed, "must be 16 lowercase hexadecimal digits")
    bias: list[tuple[int, float]] = []
    for entry in _array(item["logit_bias"], f"{at}.logit_bias"):
        pair = _array(entry, f"{at}.logit_bias")
        if len(pair) != 2:
            raise _refuse(f"{at}.logit_bias", pair, "must be pairs [token id, bias]")
        bias.append((_integer(pair[0], f"{at}.logit_bias"), _real(pair[1], f"{at}.logit_bias")))
    return Sampling(
        **reals,
        top_k=_integer(item["top_k"], f"{at}.top_k"),
        logit_bias=tuple(bias),
        seed=int(seed, 16),
    )
