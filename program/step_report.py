"""What a rank's RESULT says about a step: three digests, and on the primary rank the artifacts.

JSON holds identities, the payload holds (token id, log-probability) pairs as binary32, one pair per
row of a [pairs, 2] tensor (docs/spec/plan.md, L20 to L22). Reading demands exactly what the plan
asked for, row by row, so a reply can't be taken for another request's, position's or step's.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from errors import ContractError, MisuseError, NumericsError
from program.artifacts import ArtifactValue, SampledToken, ScoredPosition, TokenLogprob
from program.plan import PlanLimits, Row, Sample, Score, StepPlan
from program.plan_bounds import row_pairs

RESULT_TENSOR: Final = "artifacts"
_PAIR_BYTES: Final = 8
_DIGESTS: Final = ("hidden_digest", "plan_digest", "state_digest")
_HEX_DIGITS: Final = frozenset("0123456789abcdef")

Pair = tuple[int, float]


@dataclass(frozen=True, slots=True)
class StepReport:
    """plan_digest, state_digest, hidden_digest: equal on every rank, 64 hexadecimal digits.

    artifacts: in order of rows, positions ascending; empty on every rank but the primary.
    """

    plan_digest: str
    state_digest: str
    hidden_digest: str
    artifacts: tuple[ArtifactValue, ...] = ()


@dataclass(frozen=True, slots=True)
class EncodedReport:
    """The parts of a RESULT: `report`, the tensor's shape [pairs, 2] and its bytes."""

    report: dict[str, object]
    shape: tuple[int, int]
    payload: bytes


def encode_report(report: StepReport, plan: StepPlan) -> EncodedReport:
    """The parts of the RESULT. Raises NumericsError for a log-probability beyond binary32.

    Raises MisuseError when the artifacts are not those the plan wants; none at all is a rank that
    is not the primary one.
    """
    entries: list[dict[str, object]] = []
    pairs: list[Pair] = []
    artifacts = iter(report.artifacts)
    for row in _wanting(plan) if report.artifacts else ():
        entry, row_of_pairs = _encode_row(row, artifacts)
        entries.append(entry)
        pairs += row_of_pairs
    if next(artifacts, None) is not None:
        raise MisuseError("more artifacts than the plan wants")
    value: dict[str, object] = {name: getattr(report, name) for name in _DIGESTS}
    value["artifacts"] = entries
    return EncodedReport(value, (len(pairs), 2), _pack(pairs))


def decode_report(
    value: object, payload: bytes, plan: StepPlan, limits: PlanLimits, *, primary: bool
) -> StepReport:
    """The report of a rank that ran `plan`. Raises ContractError `contract.metadata`."""
    report = _object(value, ("artifacts", *_DIGESTS), "report")
    for name in _DIGESTS:
        _check_digest(name, report[name])
    wanting = list(_wanting(plan)) if primary else []
    entries = report["artifacts"]
    if not isinstance(entries, list) or len(entries) != len(wanting):
        raise _refused("artifacts", f"must be an array of {len(wanting)} objects")
    expected_bytes = _PAIR_BYTES * sum(row_pairs(row) for row in wanting)
    if len(payload) != expected_bytes:
        raise _refused("payload", f"must be {expected_bytes} bytes, not {len(payload)}")
    pairs = _unpack(payload, limits)
    artifacts: list[ArtifactValue] = []
    for row, entry in zip(wanting, entries, strict=True):
        artifacts += _decode_row(row, entry, pairs, limits)
    return StepReport(
        plan_digest=str(report["plan_digest"]),
        state_digest=str(report["state_digest"]),
        hidden_digest=str(report["hidden_digest"]),
        artifacts=tuple(artifacts),
    )


def _wanting(plan: StepPlan) -> Iterator[Row]:
    return (row for row in plan.rows if row.artifact is not None)


def _encode_row(
    row: Row, artifacts: Iterator[ArtifactValue]
) -> tuple[dict[str, object], list[Pair]]:
    end = row.start_position + len(row.token_ids)
    if isinstance(row.artifact, Score):
        first = end - row.artifact.last
        entry: dict[str, object] = {"last": row.artifact.last, "position": first}
        pairs: list[Pair] = []
        for position in range(first, end):
            scored = next(artifacts, None)
            if not isinstance(scored, ScoredPosition) or scored.position != position:
                raise MisuseError(f"no score of request {row.request_id}, position {position}")
            pairs += _pairs(scored.top)
            entry["logits_sha256"] = scored.logits_sha256
        _check_digest("logits_sha256", entry["logits_sha256"])
    else:
        sampled = next(artifacts, None)
        if not isinstance(sampled, SampledToken) or sampled.position != end:
            raise MisuseError(f"no sample of request {row.request_id}, position {end}")
        entry = {"position": end, "token_id": sampled.token_id}
        chosen = [] if sampled.logprob is None else [(sampled.token_id, sampled.logprob)]
        pairs = chosen + _pairs(sampled.top)
    if len(pairs) != row_pairs(row):
        raise MisuseError(f"{len(pairs)} pairs for request {row.request_id}")
    return {"request_id": row.request_id, **entry}, pairs


def _decode_row(
    row: Row, value: object, pairs: Iterator[TokenLogprob], limits: PlanLimits
) -> list[ArtifactValue]:
    at = f"artifact of request {row.request_id}"
    end = row.start_position + len(row.token_ids)
    if isinstance(row.artifact, Score):
        last, top = row.artifact.last, row.artifact.top
        entry = _object(value, ("last", "logits_sha256", "position", "request_id"), at)
        digest = _check_digest(f"{at}: logits_sha256", entry["logits_sha256"])
        _demand(entry, {"last": last, "position": end - last, "request_id": row.request_id}, at)
        known = row.token_ids[-last:]
        scored = [
            ScoredPosition(row.request_id, end - last + i, token_id, _take(pairs, top))
            for i, token_id in enumerate(known)
        ]
        return [*scored[:-1], replace(scored[-1], logits_sha256=digest)]
    entry = _object(value, ("position", "request_id", "token_id"), at)
    _demand(entry, {"position": end, "request_id": row.request_id}, at)
    token_id = entry["token_id"]
    if type(token_id) is not int or not 0 <= token_id < limits.vocab_size:
        raise _refused(f"{at}: token_id", f"must be below the vocabulary's {limits.vocab_size}")
    logprobs = row.artifact.logprobs if isinstance(row.artifact, Sample) else None
    if logprobs is None:
        return [SampledToken(row.request_id, end, token_id)]
    (chosen,) = _take(pairs, 1)
    if chosen.token_id != token_id:
        raise _refused(f"{at}: first pair", f"must be of the sampled token {token_id}")
    alternatives = _take(pairs, logprobs)
    return [SampledToken(row.request_id, end, token_id, chosen.logprob, alternatives)]


def _pairs(top: Sequence[TokenLogprob]) -> list[Pair]:
    return [(entry.token_id, entry.logprob) for entry in top]


def _take(pairs: Iterator[TokenLogprob], count: int) -> tuple[TokenLogprob, ...]:
    return tuple(next(pairs) for _ in range(count))


def _pack(pairs: Sequence[Pair]) -> bytes:
    numbers = [number for pair in pairs for number in pair]
    try:
        return struct.pack(f"<{len(numbers)}f", *numbers)
    except OverflowError as error:
        raise NumericsError("a log-probability is beyond binary32") from error


def _unpack(payload: bytes, limits: PlanLimits) -> Iterator[TokenLogprob]:
    for token_id, logprob in struct.iter_unpack("<2f", payload):
        if not token_id.is_integer() or not 0 <= token_id < limits.vocab_size:
            raise _refused("payload", f"token id {token_id} must be below {limits.vocab_size}")
        if not math.isfinite(logprob) or logprob > 0.0:
            raise _refused("payload", f"log-probability {logprob} must be finite and at most 0")
        yield TokenLogprob(int(token_id), logprob)


def _object(value: object, keys: tuple[str, ...], at: str) -> dict[str, object]:
    if not isinstance(value, dict) or sorted(value) != sorted(keys):
        raise _refused(at, f"must be an object with the keys {', '.join(sorted(keys))}")
    return value


def _demand(entry: dict[str, object], expected: dict[str, int], at: str) -> None:
    for key, agreed in expected.items():
        if type(entry[key]) is not int or entry[key] != agreed:
            raise _refused(f"{at}: {key}", f"must be {agreed}, not {str(entry[key])[:80]}")


def _check_digest(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) != 64 or not _HEX_DIGITS.issuperset(value):
        raise _refused(name, "must be 64 lowercase hexadecimal digits")
    return value


def _refused(at: str, rule: str) -> ContractError:
    return ContractError("metadata", f"RESULT, {at}: {rule}")
