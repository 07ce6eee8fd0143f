"""A manifest from any source is a valid RunManifest or one ConfigError that names every problem."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import ConfigError, MisuseError
from manifest.fields import FAULT_KINDS, FAULT_PHASES, FIELDS, SUM_ORDERS
from manifest.run_manifest import FaultSpec, RunManifest, from_flags, read_json, read_text

MODEL = {"program": "qwen35/sharded", "model.checkpoint": "/m", "ranks": "2"}
FAULT = {"fault.kind": "delay", "fault.rank": "1", "fault.phase": "mlp"}


def refused_fields(flags: Mapping[str, str], *, allow_fault: bool = True) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        from_flags(flags, allow_fault=allow_fault)
    assert refused.value.code == "config.invalid"
    return [problem.field for problem in refused.value.problems]


def test_the_default_run() -> None:
    manifest = from_flags({})
    assert (manifest.program, manifest.ranks, manifest.sum_order) == ("block", 4, "rank")
    assert (manifest.batch, manifest.sequence, manifest.seed, manifest.epoch) == (2, 7, 1, 1)
    assert manifest.model is None
    assert manifest.fault is None


def test_flags_and_text_give_the_same_manifest() -> None:
    text = b"ranks: 2 batch: 1 sum_order: 'pairwise' deadlines { load_ms: 7 }"
    flags = {"ranks": "2", "batch": "1", "sum_order": "pairwise", "deadlines.load_ms": "7"}
    assert from_flags(flags) == read_text(text)


def test_a_model_program_has_no_shape_and_every_model_default() -> None:
    manifest = from_flags(MODEL | {"model.device_ordinals": "1,0"})
    assert (manifest.batch, manifest.sequence) == (0, 0)
    assert manifest.model is not None
    assert manifest.model.device_ordinals == (1, 0)
    assert manifest.model.weights_dtype == "auto"


@pytest.mark.parametrize(
    ("listen", "transport"),
    [
        ("127.0.0.1:0", "tcp"),
        ("tcp:[::1]:9", "tcp"),
        ("localhost:65535", "tcp"),
        ("unix:/s", "unix"),
    ],
)
def test_the_transport_follows_from_the_address(listen: str, transport: str) -> None:
    assert from_flags({"listen": listen}).transport == transport


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ({"ranks": "3"}, ["ranks"]),
        ({"ranks": "8"}, ["ranks"]),
        ({"ranks": "0"}, ["ranks"]),
        ({"ranks": "-4"}, ["ranks"]),
        ({"ranks": "9" * 500}, ["ranks"]),
        ({"ranks": "1e3"}, ["ranks"]),
        ({"ranks": "true"}, ["ranks"]),
        ({"batch": "0"}, ["batch"]),
        ({"batch": "0", "sequence": "0"}, ["batch", "sequence"]),
        ({"batch": "65"}, ["batch"]),
        ({"sequence": "513"}, ["sequence"]),
        ({"batch": "65", "sequence": "513"}, ["batch", "sequence"]),
        ({"seed": str(1 << 53)}, ["seed"]),
        ({"epoch": "0"}, ["epoch"]),
        ({"sum_order": "ring"}, ["sum_order"]),
        ({"transport": "tcp", "listen": "unix:/s"}, ["listen"]),
        ({"transport": "unix", "listen": "127.0.0.1:1"}, ["listen"]),
        ({"listen": "nowhere"}, ["listen"]),
        ({"listen": "unix:"}, ["listen"]),
        ({"listen": "unix:" + "s" * 108}, ["listen"]),
        ({"listen": "127.0.0.1:65536"}, ["listen"]),
        ({"listen": "127.0.0.1:-1"}, ["listen"]),
        ({"listen": "0.0.0.0:7400"}, ["listen"]),
        ({"listen": "tcp:192.0.2.1:7400"}, ["listen"]),
        ({"external_workers": "true"}, ["external_workers"]),
        ({"external_workers": "yes"}, ["external_workers"]),
        ({"deadlines.phase_ms": "0"}, ["deadlines.phase_ms"]),
        ({"deadlines.phase_ms": "3600001"}, ["deadlines.phase_ms"]),
        ({"program": "qwen35"}, ["program"]),
        ({"program": "qwen35/sharded"}, ["model.checkpoint"]),
        ({"model.max_batch": "4"}, ["model.max_batch"]),
        (MODEL | {"batch": "1"}, ["batch"]),
        (MODEL | {"model.checkpoint": ""}, ["model.checkpoint"]),
        (MODEL | {"model.device_ordinals": "0"}, ["model.device_ordinals"]),
        (MODEL | {"model.device_ordinals": "0,0"}, ["model.device_ordinals"]),
        (MODEL | {"model.device_ordinals": "0,16"}, ["model.device_ordinals"]),
        (MODEL | {"model.rank_memory_bytes": "1,2,3"}, ["model.rank_memory_bytes"]),
        (MODEL | {"model.execution": "captured"}, ["model.execution"]),
        (MODEL | {"model.execution": "captured", "ranks": "1"}, ["model.execution"]),
        (MODEL | FAULT, ["program"]),
        (FAULT | {"fault.rank": "4"}, ["fault.rank"]),
        (FAULT | {"fault.rank": "16"}, ["fault.rank"]),
        (FAULT | {"fault.phase": "load"}, ["fault.phase"]),
        (FAULT | {"fault.kind": "melt"}, ["fault.kind"]),
        (FAULT | {"listen": "unix:/s", "external_workers": "true"}, ["external_workers"]),
        ({"fault.kind": "delay"}, ["fault.rank", "fault.phase"]),
        ({"source_identity": "12"}, ["source_identity"]),
        ({"numerics_identity": "\x1b"}, ["numerics_identity"]),
    ],
)
def test_refused_values(flags: dict[str, str], fields: list[str]) -> None:
    assert refused_fields(flags) == fields


def test_every_problem_is_in_one_error() -> None:
    text = b"rnaks: 2 seed: 1e3 epoch: 0 deadlines { load_ms: 0 wait: 1 } sum_order: 'ring'"
    with pytest.raises(ConfigError) as refused:
        from_flags({"batch": "x", "ranks": "3"}, text)
    fields = {problem.field for problem in refused.value.problems}
    assert fields == {
        "batch",
        "deadlines.load_ms",
        "deadlines.wait",
        "epoch",
        "ranks",
        "rnaks",
        "seed",
        "sum_order",
    }


def test_a_field_that_cannot_be_read_causes_no_second_problem() -> None:
    assert refused_fields({"ranks": "many", "fault.rank": "9"} | FAULT) == ["ranks"]


def test_a_flag_that_repeats_the_manifest_is_no_contradiction() -> None:
    assert from_flags({"ranks": "2"}, b"ranks: 2").ranks == 2


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"ranks": "2"}, b"ranks: 4"),
        ({"external_workers": "true"}, b"external_workers: false listen: 'unix:/s'"),
        ({"deadlines.load_ms": "1"}, b"deadlines { load_ms: 2 }"),
    ],
)
def test_a_flag_never_wins_silently(flags: dict[str, str], text: bytes) -> None:
    with pytest.raises(ConfigError) as refused:
        from_flags(flags, text)
    assert refused.value.code == "config.contradiction"
    assert [problem.field for problem in refused.value.problems] == list(flags)


def test_faults_need_the_entry_built_for_tests() -> None:
    assert refused_fields(FAULT, allow_fault=False) == ["fault"]
    assert from_flags(FAULT, allow_fault=True).fault == FaultSpec("delay", 1, "mlp")
    with pytest.raises(ConfigError):
        read_text(b"fault { kind: 'delay' rank: 1 phase: 'mlp' }")


def test_a_flag_that_is_no_field_is_our_mistake() -> None:
    with pytest.raises(MisuseError):
        from_flags({"rnaks": "2"})


def test_an_invalid_manifest_cannot_be_built_in_code() -> None:
    with pytest.raises(ConfigError):
        replace(from_flags({}), ranks=3)
    with pytest.raises(ConfigError):
        replace(from_flags({}), program="qwen35/sharded", batch=0, sequence=0)


def test_identities_are_filled_in_or_demanded() -> None:
    source = "a" * 64
    recorded = from_flags({}).with_identities(source, "ieee754-binary32")
    assert (recorded.source_identity, recorded.numerics_identity) == (source, "ieee754-binary32")
    assert recorded.with_identities(source, "ieee754-binary32") == recorded
    with pytest.raises(ConfigError) as refused:
        recorded.with_identities("b" * 64, "other")
    assert refused.value.code == "config.identity"
    assert len(refused.value.problems) == 2


def test_json_has_every_field_and_one_spelling() -> None:
    data = from_flags({}).to_json_bytes()
    for field in FIELDS:
        assert field.path.partition(".")[0].encode() in data
    assert b'"model":null' in data
    assert read_json(data) == from_flags({})


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"\n",
        lambda data: data.replace(b":", b": "),
        lambda data: data.replace(b'"ranks":4', b'"ranks":4,"ranks":4'),
        lambda data: data.replace(b'"ranks":4', b'"ranks":4.0'),
        lambda data: data.replace(b'"ranks":4', b'"ranks":true'),
        lambda data: data.replace(b'"ranks":4', b'"ranks":3'),
        lambda data: data.replace(b'"ranks":4,', b""),
        lambda data: data.replace(b'"ranks":4', b'"ranks":4,"rnaks":4'),
        lambda data: data.replace(b'"model":null', b'"model":{}'),
        lambda data: data.replace(b'"model":null', b'"model":5'),
        lambda data: data.replace(b'"model":null,', b""),
        lambda data: data.replace(b'"seed":1', b'"seed":' + b"1" * 5000),
        lambda data: b"",
        lambda data: b"[]",
        lambda data: b"[" * 60_000,
        lambda data: b" " * 70_000,
        lambda data: b"\xff",
    ],
)
def test_json_that_no_run_wrote(damage: object) -> None:
    assert callable(damage)
    with pytest.raises(ConfigError):
        read_json(damage(from_flags({}).to_json_bytes()))


def valid_manifests() -> st.SearchStrategy[RunManifest]:
    integers = st.integers(1, 3_600_000).map(str)
    flags: dict[str, st.SearchStrategy[str]] = {
        "ranks": st.sampled_from(("1", "2", "4")),
        "batch": st.integers(1, 16).map(str),
        "sequence": st.integers(1, 64).map(str),
        "seed": st.integers(0, (1 << 53) - 1).map(str),
        "sum_order": st.sampled_from(SUM_ORDERS),
        "epoch": st.integers(1, 1 << 52).map(str),
        "listen": st.sampled_from(("", "unix:/s", "127.0.0.1:0")),
        "deadlines.load_ms": integers,
        "deadlines.phase_ms": integers,
        "source_identity": st.sampled_from(("", "0" * 64)),
        "numerics_identity": st.text(
            st.characters(min_codepoint=32, max_codepoint=126), max_size=9
        ),
    }
    fault = {
        "fault.kind": st.sampled_from(FAULT_KINDS),
        "fault.rank": st.just("0"),
        "fault.phase": st.sampled_from(FAULT_PHASES),
    }
    plain = st.fixed_dictionaries({}, optional=flags)
    faulty = st.fixed_dictionaries(fault, optional=flags)
    texts = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1)
    path = st.fixed_dictionaries({"model.checkpoint": texts}).map(lambda one: MODEL | one)
    return st.one_of(plain, faulty, path).map(lambda given: from_flags(given, allow_fault=True))


@given(valid_manifests())
def test_round_trips(manifest: RunManifest) -> None:
    text = manifest.to_text()
    again = read_text(text.encode(), allow_fault=True)
    assert again == manifest
    assert again.to_text() == text
    assert again.to_json_bytes() == manifest.to_json_bytes()
    assert read_json(manifest.to_json_bytes()) == manifest


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_any_bytes_give_a_manifest_or_a_config_error(data: bytes) -> None:
    for read in (read_text, read_json):
        with contextlib.suppress(ConfigError):
            assert read(data).ranks in (1, 2, 4)


@given(st.dictionaries(st.sampled_from([field.path for field in FIELDS]), st.text(max_size=30)))
def test_any_flags_give_a_manifest_or_a_config_error(flags: dict[str, str]) -> None:
    message = ""
    try:
        from_flags(flags, allow_fault=True)
    except ConfigError as refused:
        message = refused.diagnostics()
    assert message.isascii()
