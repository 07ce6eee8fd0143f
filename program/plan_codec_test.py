"""A plan survives the trip as JSON; anything spelled otherwise is refused, never repaired."""

from __future__ import annotations

import copy
import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import ContractError
from program.canonical import canonical_json
from program.plan import (
    INTEGER_MAX,
    LOGIT_BIAS_ENTRIES_MAX,
    PLAN_BYTES_MAX,
    SLOTS_MAX,
    Admit,
    Move,
    Release,
    Row,
    Sample,
    Sampling,
    Score,
    StepPlan,
)
from program.plan_cases import FIRST, LIMITS, SECOND
from program.plan_codec import (
    decode_plan,
    encode_entry,
    encode_plan,
    entry_bytes,
    page_runs,
    plan_digest,
)

NUMBERS = st.integers(0, INTEGER_MAX)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PAGES = st.sets(st.integers(0, LIMITS.pages - 1)).map(lambda pages: tuple(sorted(pages)))
SAMPLINGS = st.builds(
    Sampling,
    temperature=FLOATS,
    top_k=NUMBERS,
    top_p=FLOATS,
    min_p=FLOATS,
    repetition_penalty=FLOATS,
    presence_penalty=FLOATS,
    frequency_penalty=FLOATS,
    logit_bias=st.lists(st.tuples(NUMBERS, FLOATS), max_size=3).map(tuple),
    seed=st.integers(0, 2**64 - 1),
)
ARTIFACTS = st.one_of(
    st.none(), st.builds(Sample, st.none() | NUMBERS), st.builds(Score, NUMBERS, NUMBERS)
)
TOKENS = st.lists(NUMBERS, max_size=5).map(tuple)
PLANS = st.builds(
    StepPlan,
    step=NUMBERS,
    releases=st.lists(st.builds(Release, NUMBERS, NUMBERS, NUMBERS), max_size=3).map(tuple),
    admissions=st.lists(
        st.builds(Admit, NUMBERS, NUMBERS, NUMBERS, PAGES, NUMBERS, NUMBERS, st.none() | SAMPLINGS),
        max_size=3,
    ).map(tuple),
    moves=st.lists(st.builds(Move, NUMBERS, NUMBERS, NUMBERS), max_size=3).map(tuple),
    rows=st.lists(st.builds(Row, NUMBERS, NUMBERS, NUMBERS, TOKENS, ARTIFACTS), max_size=3).map(
        tuple
    ),
)


def wire(plan: StepPlan) -> Any:
    """The plan as a reader of canonical JSON sees it."""
    return json.loads(canonical_json(encode_plan(plan)))


def parents(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) inside a JSON value."""
    found: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        container = pending.pop()
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list):
                pending.append(container[key])
    return found


@given(PLANS)
def test_round_trip(plan: StepPlan) -> None:
    decoded = decode_plan(wire(plan), LIMITS)
    assert decoded == plan
    assert plan_digest(decoded) == plan_digest(plan)
    assert canonical_json(encode_plan(decoded)) == canonical_json(encode_plan(plan))


@given(PLANS)
def test_entry_bytes_add_up(plan: StepPlan) -> None:
    entries: list[Release | Admit | Move | Row] = []
    entries += [*plan.releases, *plan.admissions, *plan.moves, *plan.rows]
    empty = len(canonical_json(encode_plan(StepPlan(step=plan.step))))
    bound = empty + sum(entry_bytes(entry) for entry in entries)
    assert bound - 4 <= len(canonical_json(encode_plan(plan))) <= bound


@given(st.sets(st.integers(0, 60)))
def test_runs_are_maximal_and_lossless(pages: set[int]) -> None:
    runs = page_runs(sorted(pages))
    assert [page for first, count in runs for page in range(first, first + count)] == sorted(pages)
    assert all(a[0] + a[1] < b[0] for a, b in pairwise(runs))


@pytest.mark.parametrize("plan", [FIRST, SECOND], ids=["first", "second"])
def test_every_value_of_another_type_is_refused(plan: StepPlan) -> None:
    """At every place of the plan: each JSON type that can't stand there, one at a time."""
    places = len(parents(wire(plan)))
    for place in range(places):
        for wrong in (True, 1.5, -1, INTEGER_MAX + 1, "x", {"x": 1}, [["x"]]):
            value = wire(plan)
            container, key = parents(value)[place]
            container[key] = copy.deepcopy(wrong)
            with pytest.raises(ContractError) as caught:
                decode_plan(value, LIMITS)
            assert caught.value.code == "contract.metadata"


@pytest.mark.parametrize("plan", [FIRST, SECOND], ids=["first", "second"])
def test_every_missing_and_every_extra_key_is_refused(plan: StepPlan) -> None:
    objects = [(c, k) for c, k in parents(wire(plan)) if isinstance(c, dict)]
    for place in range(len(objects)):
        for change in ("missing", "extra"):
            value = wire(plan)
            container, key = [(c, k) for c, k in parents(value) if isinstance(c, dict)][place]
            if change == "missing":
                del container[key]
            else:
                container[key + "_"] = container[key]
            with pytest.raises(ContractError) as caught:
                decode_plan(value, LIMITS)
            assert caught.value.code == "contract.metadata"


@pytest.mark.parametrize("value", [None, [], 1, "plan", True])
def test_a_plan_is_an_object(value: object) -> None:
    with pytest.raises(ContractError):
        decode_plan(value, LIMITS)


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "1.0",
        "0x1p+0",
        "0x1.p+0",
        "0x1.0P+0",
        "0X1.0p+0",
        "0x1.00p+0",
        "0x1.0p0",
        "0x1.0p+00",
        "+0x1.0p+0",
        " 0x1.0p+0",
        "0x1.0p+0\n",
        "0x1.8000000000000p+9999",
        "0x0.8p+0",
        "nan",
        "inf",
        "-inf",
        "0x1.00000000000000p+0",
    ],
)
def test_reals_have_one_spelling(spelling: str) -> None:
    value = wire(FIRST)
    value["admissions"][0]["sampling"]["temperature"] = spelling
    with pytest.raises(ContractError) as caught:
        decode_plan(value, LIMITS)
    assert caught.value.code == "contract.metadata"


@pytest.mark.parametrize("number", [0.0, -0.0, 0.1, 5e-324, math.ulp(1.0), 1.7976931348623157e308])
def test_reals_are_exact(number: float) -> None:
    plan = StepPlan(0, admissions=(Admit(0, 0, 1, (), 1, 1, Sampling(temperature=number)),))
    sampling = decode_plan(wire(plan), LIMITS).admissions[0].sampling
    assert sampling is not None
    assert sampling.temperature.hex() == number.hex()


@pytest.mark.parametrize("seed", ["", "0", "000000000000000G", "0" * 17, "00000000000000AB", 0])
def test_seeds_are_sixteen_lowercase_digits(seed: object) -> None:
    value = wire(FIRST)
    value["admissions"][0]["sampling"]["seed"] = seed
    with pytest.raises(ContractError):
        decode_plan(value, LIMITS)


@pytest.mark.parametrize(
    "runs",
    [
        [[0, 0]],
        [[0, 1], [1, 1]],
        [[4, 2], [1, 1]],
        [[4, 2], [5, 1]],
        [[0, LIMITS.pages + 1]],
        [[0, INTEGER_MAX]],
        [[INTEGER_MAX, INTEGER_MAX]],
        [[LIMITS.pages, 1]],
        [[1]],
        [[1, 1, 1]],
        [1, 1],
    ],
)
def test_page_runs_are_bounded_ascending_and_maximal(runs: list[Any]) -> None:
    value = wire(FIRST)
    value["admissions"][0]["pages"] = runs
    with pytest.raises(ContractError) as caught:
        decode_plan(value, LIMITS)
    assert caught.value.code == "contract.metadata"


def test_the_largest_plans_of_full_slots_fit() -> None:
    """Every slot with a release, or with a move and a row: what SLOTS_MAX promises."""
    big = INTEGER_MAX
    releases = (Release(SLOTS_MAX, big, big),) * SLOTS_MAX
    rows = (Row(big, SLOTS_MAX, big, (999_999,), Sample(999)),) * SLOTS_MAX
    moves = (Move(SLOTS_MAX, SLOTS_MAX, big),) * SLOTS_MAX
    for plan in (StepPlan(big, releases=releases), StepPlan(big, moves=moves, rows=rows)):
        assert len(canonical_json(encode_plan(plan))) <= PLAN_BYTES_MAX


def test_the_largest_admission_fits_a_plan_of_its_own() -> None:
    longest = -float.fromhex("0x1.fffffffffffffp-1022")
    sampling = Sampling(logit_bias=((999_999, longest),) * LOGIT_BIAS_ENTRIES_MAX)
    admit = Admit(SLOTS_MAX, INTEGER_MAX, INTEGER_MAX, (0,), INTEGER_MAX, INTEGER_MAX, sampling)
    assert len(canonical_json(encode_entry(admit))) < PLAN_BYTES_MAX // 4
