"""ACK's and LOAD's parameters: whole round trips, and every wrong key, type and value refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import ContractError
from program.canonical import canonical_json
from program.plan import INTEGER_MAX, SLOTS_MAX, VOCAB_SIZE_MAX, PlanLimits
from program.qwen35_load import CHECKPOINT_CHARACTERS_MAX, CPUS_MAX, LoadOrder, ModelSource
from program.qwen35_memory import WeightsDtype
from program.spec import Dtype
from program.strict_json import parse_object

LIMITS = PlanLimits(
    vocab_size=96, context_tokens=64, slots=2, pages=8, page_tokens=16, tokens_per_step=32
)
SOURCE = ModelSource("/models/tiny", Dtype.FLOAT32)
ORDER = LoadOrder(LIMITS, WeightsDtype.AUTO, cpus=(3, 0), check_weights=True)

JUNK: list[object] = [None, True, 1, -1, 1.5, "", "text", [], ["x"], {}, {"a": 1}, 2**60, "\0"]


def through_json(value: dict[str, Any]) -> dict[str, Any]:
    """As a frame's metadata carries it."""
    return parse_object(canonical_json(value), "frame", bytes_max=1 << 20, code="contract.metadata")


def refused(read: Callable[[], object]) -> None:
    with pytest.raises(ContractError) as refusal:
        read()
    assert refusal.value.code == "contract.metadata"


sizes = st.integers(1, INTEGER_MAX)
limits = st.builds(
    PlanLimits,
    vocab_size=st.integers(1, VOCAB_SIZE_MAX),
    context_tokens=sizes,
    slots=st.integers(1, SLOTS_MAX),
    pages=sizes,
    page_tokens=sizes,
    tokens_per_step=sizes,
)
orders = st.builds(
    LoadOrder,
    limits=limits,
    weights_dtype=st.sampled_from(WeightsDtype),
    cpus=st.lists(st.integers(0, CPUS_MAX - 1), unique=True, max_size=8).map(tuple),
    check_weights=st.booleans(),
    poison_state=st.booleans(),
)


@given(orders)
def test_a_load_order_survives_its_frame(order: LoadOrder) -> None:
    assert LoadOrder.from_json(through_json(order.to_json())) == order


@pytest.mark.parametrize("compute", list(Dtype))
def test_a_source_survives_its_frame(compute: Dtype) -> None:
    source = ModelSource("/models/caf\u00e9 " + "x" * 4000, compute)
    assert ModelSource.from_json(through_json(dict(source.to_json()))) == source


@pytest.mark.parametrize("key", sorted(SOURCE.to_json()))
@pytest.mark.parametrize("junk", JUNK)
def test_a_source_with_another_value_is_refused(key: str, junk: object) -> None:
    refused(partial(ModelSource.from_json, {**SOURCE.to_json(), key: junk}))


@pytest.mark.parametrize(
    "path", ["relative", "~/model", "/a\0b", "/" + "x" * CHECKPOINT_CHARACTERS_MAX]
)
def test_a_path_that_is_not_one_place_is_refused(path: str) -> None:
    refused(partial(ModelSource.from_json, {**SOURCE.to_json(), "checkpoint": path}))


# What a key may also hold, so that it is not junk for it.
ALLOWED: dict[str, list[object]] = {
    "check_weights": [True],
    "poison_state": [True],
    "cpus": [[]],
    "weights_dtype": [],
    "limits": [],
}


@pytest.mark.parametrize("key", sorted(ORDER.to_json()))
@pytest.mark.parametrize("junk", JUNK)
def test_a_load_order_with_another_value_is_refused(key: str, junk: object) -> None:
    if any(type(junk) is type(fine) and junk == fine for fine in ALLOWED[key]):
        LoadOrder.from_json({**ORDER.to_json(), key: junk})
        return
    refused(partial(LoadOrder.from_json, {**ORDER.to_json(), key: junk}))


@pytest.mark.parametrize(
    "cpus", [[0, 0], [CPUS_MAX], [-1], [True], [0.0], ["0"], list(range(CPUS_MAX + 1)), (0, 1)]
)
def test_processors_are_different_small_integers(cpus: object) -> None:
    refused(partial(LoadOrder.from_json, {**ORDER.to_json(), "cpus": cpus}))


@pytest.mark.parametrize("key", ["slots", "pages", "vocab_size", "tokens_per_step"])
@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, 2**53])
def test_limits_out_of_range_are_refused(key: str, value: object) -> None:
    given_limits = {**asdict(LIMITS), key: value}
    refused(partial(LoadOrder.from_json, {**ORDER.to_json(), "limits": given_limits}))


@pytest.mark.parametrize(
    ("document", "read"),
    [(SOURCE.to_json(), ModelSource.from_json), (ORDER.to_json(), LoadOrder.from_json)],
)
def test_missing_and_extra_keys_are_refused(
    document: dict[str, object], read: Callable[[dict[str, object]], object]
) -> None:
    variants = [{k: v for k, v in document.items() if k != missing} for missing in document]
    for wrong in [{**document, "extra": 1}, *variants]:
        refused(partial(read, wrong))
