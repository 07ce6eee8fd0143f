"""M2, M3 and M5: exact keys and types, the payload's size, and which difference is named."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import ContractError, MisuseError, PeerError, ProtocolError
from testdata.vectors.reading import vectors
from wire.canonical import encode_canonical
from wire.frame import Kind
from wire.metadata import (
    RECORDS,
    Ack,
    Command,
    Fence,
    Hello,
    Load,
    Result,
    Tensor,
    demand,
    parse,
    parse_tensor,
    payload_bytes,
)

VECTORS = vectors("metadata.json")


def of_rule(rule: str) -> list[Any]:
    return [pytest.param(vector, id=vector["id"]) for vector in VECTORS if vector["rule"] == rule]


@pytest.mark.parametrize("vector", of_rule("keys"))
def test_keys_vector(vector: dict[str, Any]) -> None:
    data, kind = bytes.fromhex(vector["data"]), Kind[vector["kind"]]
    if vector["code"] is None:
        assert parse(kind, data).to_bytes() == data
        return
    with pytest.raises(ContractError) as refused:
        parse(kind, data)
    assert refused.value.code == vector["code"]


@pytest.mark.parametrize("vector", of_rule("payload"))
def test_payload_vector(vector: dict[str, Any]) -> None:
    tensor = parse_tensor(Kind[vector["kind"]], bytes.fromhex(vector["data"]))
    assert (tensor.payload_bytes == vector["payload_bytes"]) is (vector["result"] == "valid")


@pytest.mark.parametrize("vector", of_rule("agreement"))
def test_agreement_vector(vector: dict[str, Any]) -> None:
    received, agreed = bytes.fromhex(vector["data"]), bytes.fromhex(vector["agreed"])
    if vector["code"] is None:
        demand(received, agreed)
        return
    with pytest.raises(ContractError) as refused:
        demand(received, agreed)
    assert refused.value.code == vector["code"]
    assert refused.value.message.startswith(vector["differs"] + ":")


def test_every_kind_has_a_record_with_a_rule_for_each_field() -> None:
    assert RECORDS.keys() == set(Kind)
    for record in RECORDS.values():
        assert {field.name for field in fields(record)} == record.RULES.keys()


@pytest.mark.parametrize(
    "record",
    [
        Hello("little", "<f4", 3),
        Ack({"slots": 2}, "block", "ab" * 32, 0, 4),
        Load({}, "load", 1),
        Command("attention", None, 0, 9),
        Command("attention", {"rows": []}, 0, 9),
        Fence("load", 0, {"bytes": 7}, 0),
        Tensor("<f4", "mlp", 1, (2, 3), "mlp.total"),
        Result("<f8", "result", 1, (0, 3), "y", {"digest": "x"}, 4),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_is_parsed_back(record: Any) -> None:
    assert type(record).parse(record.to_bytes()) == record


def test_shapes_come_back_as_tuples() -> None:
    tensor = Tensor.parse(Tensor("<f4", "p", 0, (2, 3), "t").to_bytes())
    assert tensor.shape == (2, 3)


def test_payload_bytes() -> None:
    assert payload_bytes((2, 7, 16), "<f4") == 896
    assert payload_bytes((2, 7, 16), "<f8") == 1792
    assert payload_bytes((2**31, 2**31, 2**31), "<f4") == 2**95


def test_not_canonical_metadata_is_not_a_contract_matter() -> None:
    with pytest.raises(ProtocolError):
        parse(Kind.HELLO, b'{ "rank":0}')


def test_an_agreement_of_ours_that_is_not_canonical_is_a_misuse() -> None:
    with pytest.raises(MisuseError):
        demand(b"{}", b"{ }")


def test_a_long_value_is_shown_in_part() -> None:
    received = encode_canonical({"plan": "x" * 60_000})
    with pytest.raises(ContractError) as refused:
        demand(received, encode_canonical({"plan": None}))
    assert len(refused.value.message) < 400


def test_a_deep_value_can_be_shown() -> None:
    deep = encode_canonical({"plan": [[[[[[[0]]]]]]]})
    with pytest.raises(ContractError):
        demand(deep, encode_canonical({"plan": None}))


values = st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=2) | st.just([1])
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@settings(max_examples=300, deadline=None)
@given(objects, objects)
def test_demand_passes_equal_bytes_alone(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    agreed, received = encode_canonical(ours), encode_canonical(theirs)
    if agreed == received:
        demand(received, agreed)
        return
    with pytest.raises(ContractError):
        demand(received, agreed)


def refusals(kind: Kind, data: bytes) -> list[PeerError]:
    """The error of a refused record; none if it is accepted, and then it is spelled as it came."""
    try:
        assert parse(kind, data).to_bytes() == data
    except PeerError as error:
        return [error]
    return []


any_metadata: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from([*Tensor.RULES, *Result.RULES, *Ack.RULES, *Command.RULES, "x"]),
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.sampled_from(["<f4", "load", "little", "ab" * 32])
    | st.lists(st.integers(-1, 9), max_size=5)
    | st.just({}),
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(Kind), any_metadata)
def test_any_object_is_a_record_or_a_contract_error(kind: Kind, value: dict[str, Any]) -> None:
    data = encode_canonical(value)
    codes = [error.code for error in refusals(kind, data)]
    assert codes in ([], ["contract.metadata"])
