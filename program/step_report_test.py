"""A step's report survives the trip; a reply to anything but the plan is refused."""

from __future__ import annotations

import copy
import json
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import ContractError, MisuseError, NumericsError
from program.artifacts import ArtifactValue, SampledToken, ScoredPosition, TokenLogprob
from program.canonical import canonical_json
from program.plan import SLOTS_MAX, PlanLimits, Row, Sample, Score, StepPlan
from program.plan_cases import LIMITS
from program.step_report import StepReport, decode_report, encode_report

DIGESTS = ("a" * 64, "b" * 64, "0" * 64)
PLAN = StepPlan(
    step=4,
    rows=(
        Row(1, 0, 5, (9,), Sample()),
        Row(2, 1, 0, (1, 2)),
        Row(3, 2, 10, (20, 21, 22), Score(last=2, top=1)),
        Row(4, 3, 3, (8,), Sample(2)),
    ),
)
ARTIFACTS: tuple[ArtifactValue, ...] = (
    SampledToken(1, 6, 50),
    ScoredPosition(3, 11, 21, (TokenLogprob(7, -0.5),)),
    ScoredPosition(3, 12, 22, (TokenLogprob(999, -0.25),), "c" * 64),
    SampledToken(4, 4, 60, -1.5, (TokenLogprob(61, -0.5), TokenLogprob(60, -1.5))),
)
REPORT = StepReport(*DIGESTS, ARTIFACTS)


def wire() -> tuple[Any, bytes]:
    encoded = encode_report(REPORT, PLAN)
    assert encoded.shape == (5, 2)
    assert len(encoded.payload) == 40
    return json.loads(canonical_json(encoded.report)), encoded.payload


def test_round_trip() -> None:
    value, payload = wire()
    assert decode_report(value, payload, PLAN, LIMITS, primary=True) == REPORT


def test_the_exact_form() -> None:
    value, payload = wire()
    assert value == {
        "artifacts": [
            {"position": 6, "request_id": 1, "token_id": 50},
            {"last": 2, "logits_sha256": "c" * 64, "position": 11, "request_id": 3},
            {"position": 4, "request_id": 4, "token_id": 60},
        ],
        "hidden_digest": DIGESTS[2],
        "plan_digest": DIGESTS[0],
        "state_digest": DIGESTS[1],
    }
    assert payload == struct.pack("<10f", 7, -0.5, 999, -0.25, 60, -1.5, 61, -0.5, 60, -1.5)


def test_a_rank_that_is_not_primary_reports_digests_alone() -> None:
    encoded = encode_report(StepReport(*DIGESTS), PLAN)
    assert (encoded.shape, encoded.payload) == ((0, 2), b"")
    decoded = decode_report(encoded.report, b"", PLAN, LIMITS, primary=False)
    assert decoded == StepReport(*DIGESTS)
    with pytest.raises(ContractError):
        decode_report(encoded.report, b"", PLAN, LIMITS, primary=True)
    value, payload = wire()
    with pytest.raises(ContractError):
        decode_report(value, payload, PLAN, LIMITS, primary=False)


@given(
    st.lists(st.floats(max_value=0, min_value=-(2.0**126), width=32), min_size=3, max_size=3),
    st.lists(st.integers(0, LIMITS.vocab_size - 1), min_size=3, max_size=3),
)
def test_binary32_log_probabilities_are_exact(logprobs: list[float], ids: list[int]) -> None:
    top = tuple(TokenLogprob(i, x) for i, x in zip(ids[1:], logprobs[1:], strict=True))
    report = StepReport(*DIGESTS, (SampledToken(4, 4, ids[0], logprobs[0], top),))
    plan = StepPlan(0, rows=(PLAN.rows[3],))
    encoded = encode_report(report, plan)
    decoded = decode_report(encoded.report, encoded.payload, plan, LIMITS, primary=True)
    assert decoded == report


def places(value: Any) -> list[tuple[Any, Any]]:
    found = [(value, key) for key in value]
    for index, entry in enumerate(value["artifacts"]):
        found.append((value["artifacts"], index))
        found += [(entry, key) for key in entry]
    return found


WRONG: tuple[Any, ...] = (None, True, 1.5, -1, 2**53, "x", [], {}, "A" * 64)


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
@pytest.mark.parametrize("place", range(len(places(wire()[0]))))
def test_every_other_value_at_every_place_is_refused(place: int, wrong: Any) -> None:
    value, payload = wire()
    container, key = places(value)[place]
    container[key] = copy.deepcopy(wrong)
    with pytest.raises(ContractError) as caught:
        decode_report(value, payload, PLAN, LIMITS, primary=True)
    assert caught.value.code == "contract.metadata"


def test_every_number_is_demanded_or_bounded() -> None:
    """Identity and position exactly; a token id only within the vocabulary."""
    for place in range(len(places(wire()[0]))):
        value, payload = wire()
        container, key = places(value)[place]
        if type(container[key]) is not int:
            continue
        container[key] += LIMITS.vocab_size if key == "token_id" else 1
        with pytest.raises(ContractError):
            decode_report(value, payload, PLAN, LIMITS, primary=True)


CHANGES: list[Callable[[Any], object]] = [
    lambda value: value.pop("plan_digest"),
    lambda value: value.update(extra=1),
    lambda value: value["artifacts"].pop(),
    lambda value: value["artifacts"].append(value["artifacts"][0]),
    lambda value: value["artifacts"].reverse(),
    lambda value: value["artifacts"][0].pop("token_id"),
    lambda value: value["artifacts"][0].update(last=1),
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_keys_and_entries_are_exact(change: Callable[[Any], object]) -> None:
    value, payload = wire()
    change(value)
    with pytest.raises(ContractError) as caught:
        decode_report(value, payload, PLAN, LIMITS, primary=True)
    assert caught.value.code == "contract.metadata"


@pytest.mark.parametrize(
    ("index", "number"),
    [
        (0, math.nan),
        (0, -1.0),
        (0, 0.5),
        (0, float(LIMITS.vocab_size)),
        (1, math.nan),
        (1, -math.inf),
        (1, 0.5),
        (4, 61.0),
    ],
)
def test_numbers_of_the_payload_are_checked(index: int, number: float) -> None:
    value, payload = wire()
    changed = bytearray(payload)
    struct.pack_into("<f", changed, 4 * index, number)
    with pytest.raises(ContractError) as caught:
        decode_report(value, bytes(changed), PLAN, LIMITS, primary=True)
    assert caught.value.code == "contract.metadata"


@pytest.mark.parametrize("change", [-8, -4, -1, 4, 8])
def test_the_length_of_the_payload_is_checked(change: int) -> None:
    value, payload = wire()
    longer = (payload + bytes(8))[: len(payload) + change]
    with pytest.raises(ContractError):
        decode_report(value, longer, PLAN, LIMITS, primary=True)


def test_artifacts_that_the_plan_does_not_want_are_our_mistake() -> None:
    wrong: list[tuple[ArtifactValue, ...]] = [
        ARTIFACTS[:-1],
        (*ARTIFACTS, ARTIFACTS[0]),
        ARTIFACTS[::-1],
        (SampledToken(1, 7, 50), *ARTIFACTS[1:]),
        (SampledToken(1, 6, 50, -1.0), *ARTIFACTS[1:]),
    ]
    for artifacts in wrong:
        with pytest.raises(MisuseError):
            encode_report(replace(REPORT, artifacts=artifacts), PLAN)


def test_a_log_probability_beyond_binary32_is_named() -> None:
    plan = StepPlan(0, rows=(Row(1, 0, 0, (9,), Sample(0)),))
    with pytest.raises(NumericsError):
        encode_report(StepReport(*DIGESTS, (SampledToken(1, 1, 2, -5e38),)), plan)


def test_the_report_of_full_slots_fits_the_metadata() -> None:
    far = 2**53 - 2
    limits = PlanLimits(2**24, far, SLOTS_MAX, far, 1, far)
    rows = tuple(Row(far, i, far - 1, (1,), Sample()) for i in range(SLOTS_MAX))
    plan = StepPlan(far, rows=rows)
    artifacts = tuple(SampledToken(far, far, 2**24 - 1) for _ in rows)
    encoded = encode_report(StepReport(*DIGESTS, artifacts), plan)
    assert len(canonical_json(encoded.report)) < 65_536 // 2
    assert decode_report(encoded.report, b"", plan, limits, primary=True).artifacts == artifacts
