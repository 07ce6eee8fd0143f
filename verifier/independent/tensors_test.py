"""Seeded tensors and their cuts against the shared vectors."""

from __future__ import annotations

import hashlib

import block
import pytest
import tensors
import vectors

VALID = vectors.by_id("tensors", result="valid")


@pytest.mark.parametrize("name", VALID)
def test_tensor(name: str) -> None:
    vector = VALID[name]
    seed, tensor, count = vector["seed"], vector["tensor"], vector["count"]
    assert f"{tensors.name_hash(tensor):016x}" == vector["name_hash"]
    assert f"{tensors.tensor_key(seed, tensor):016x}" == vector["key"]
    integers = tensors.integers(seed, tensor, count)
    assert integers[:4] == vector["first_integers"]
    assert integers[-1] == vector["last_integer"]
    data = tensors.to_bytes(tensors.values(seed, tensor, count, vector["exponent"]))
    assert data[:16].hex() == vector["first_bytes"]
    assert hashlib.sha256(data).hexdigest() == vector["sha256"]


def test_mixing() -> None:
    assert tensors.mix(1234567 + 0x9E3779B97F4A7C15) == 6457827717110365317


@pytest.mark.parametrize("weight", block.WEIGHTS, ids=lambda weight: weight.name)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_slices_of_all_ranks_make_the_whole(weight: block.Weight, ranks: int) -> None:
    rows, columns = weight.local_shape(ranks)
    whole = tensors.whole_weight(3, weight.name)
    for rank in range(ranks):
        local = tensors.local_values(3, ranks, rank, weight.name)
        for index, value in enumerate(local):
            row, column = divmod(index, columns)
            row += rank * rows if weight.axis == 0 else 0
            column += rank * columns if weight.axis == 1 else 0
            assert value == whole[row * weight.columns + column]


@pytest.mark.parametrize(
    ("ranks", "digest", "payload"),
    [
        (1, "ebde5fc9136d9b9e2c99c16b0ac50731aba0e4de5e039406e5e19878a6098ffc", 13_056),
        (2, "41de5a7ab0a43f971e97926f0c15c326ace2bd73547d21dce9a378f869321205", 18_432),
        (4, "ee5b0f0e715e07602cdd05f1db46d8da91786635f9001e2d08f947181652fb2d", 29_184),
    ],
)
def test_check_values_of_the_program(ranks: int, digest: str, payload: int) -> None:
    assert block.digest(ranks) == digest
    assert block.payload_bytes(ranks, 2, 7) == payload
