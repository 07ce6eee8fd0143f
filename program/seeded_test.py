"""Seeded tensors against the vectors any other implementation reads, and against their own law."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from errors import ConfigError
from program.block import INPUT_EXPONENT, WEIGHT_EXPONENT, block_spec
from program.seeded import SEED_MAX, integers, mix, name_hash, stream_key, tensor_bytes

VECTORS = json.loads(Path("testdata/vectors/tensors.json").read_text("ascii"))["vectors"]
VALID = [vector for vector in VECTORS if vector["result"] == "valid"]
INVALID = [vector for vector in VECTORS if vector["result"] == "invalid"]


def arguments(vector: dict[str, Any]) -> tuple[int, str, int, int]:
    return vector["seed"], vector["tensor"], vector["count"], vector["exponent"]


@pytest.mark.parametrize("vector", VALID, ids=[vector["id"] for vector in VALID])
def test_valid_vectors(vector: dict[str, Any]) -> None:
    seed, name, count, exponent = arguments(vector)
    assert f"{name_hash(name):016x}" == vector["name_hash"]
    assert f"{stream_key(seed, name):016x}" == vector["key"]
    values = integers(seed, name, count)
    assert values[:4] == vector["first_integers"]
    assert values[-1] == vector["last_integer"]
    data = tensor_bytes(seed, name, count, exponent)
    assert data[:16].hex() == vector["first_bytes"]
    assert hashlib.sha256(data).hexdigest() == vector["sha256"]


def test_the_document_states_its_check_values() -> None:
    text = Path("docs/spec/tensors.md").read_text("utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.endswith("...` |")]
    stated = {(row[4].strip(" `"), row[6].strip(" `"), row[7].strip(" `.")) for row in rows}
    known = {(vector["key"], vector["first_bytes"][:8], vector["sha256"][:16]) for vector in VALID}
    assert len(rows) == 5
    assert stated <= known


@pytest.mark.parametrize("vector", INVALID, ids=[vector["id"] for vector in INVALID])
def test_invalid_vectors(vector: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refusal:
        tensor_bytes(*arguments(vector))
    assert refusal.value.code == vector["code"]


def test_the_vectors_name_every_tensor_of_the_block_with_its_exponent() -> None:
    weights = {weight.name for weight in block_spec(1).weights}
    exponents = {vector["tensor"]: vector["exponent"] for vector in VECTORS}
    assert exponents == dict.fromkeys(weights, WEIGHT_EXPONENT) | {"x": INPUT_EXPONENT}


@pytest.mark.parametrize("exponent", [-126, -27, -25, 0])
def test_no_value_was_rounded(exponent: int) -> None:
    drawn = integers(5, "w", 4096)
    values = struct.unpack("<4096f", tensor_bytes(5, "w", 4096, exponent))
    assert [value * 2.0**-exponent for value in values] == drawn


def test_an_element_depends_on_its_index_alone() -> None:
    assert integers(9, "x", 1000)[:100] == integers(9, "x", 100)
    key = stream_key(9, "x")
    element = (mix((key + 100 * 0x9E3779B97F4A7C15) % 2**64) >> 40) - 2**23
    assert integers(9, "x", 100)[-1] == element


def test_integers_fill_their_range_evenly() -> None:
    drawn = integers(1, "x", 20000)
    assert all(-(2**23) <= value < 2**23 for value in drawn)
    eighths = [0] * 8
    for value in drawn:
        eighths[(value + 2**23) >> 21] += 1
    assert all(2300 < count < 2700 for count in eighths)


def test_seeds_and_names_give_unrelated_tensors() -> None:
    streams = [
        tuple(integers(seed, name, 8)) for seed in (0, 1, 2, SEED_MAX) for name in ("x", "wq", "qw")
    ]
    assert len(set(streams)) == len(streams)
    assert len({value for stream in streams for value in stream}) > 90


def test_the_mixing_function_is_splitmix64() -> None:
    """The published generator's first outputs for the seed 1234567."""
    state, outputs = 1234567, []
    for _ in range(3):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        outputs.append(mix(state))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]
