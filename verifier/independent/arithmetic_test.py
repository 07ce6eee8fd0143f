"""The exact arithmetic against the shared vectors, and against the binary64 reference."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import arithmetic
import binary32
import pytest
import reference
import tensors
import vectors

FILE = vectors.load("block")
FUNCTIONS = FILE["functions"]
RUNS = {each["id"]: each for each in FILE["vectors"]}
WHOLE = next(each for each in FILE["vectors"] if each["ranks"] is not None)
OUTPUTS = [name for name, each in RUNS.items() if each["ranks"] is None]


def double(digits: str) -> float:
    return float(struct.unpack(">d", bytes.fromhex(digits))[0])


def single(digits: str) -> float:
    return float(struct.unpack(">f", bytes.fromhex(digits))[0])


def digest(values: Sequence[float]) -> str:
    return hashlib.sha256(tensors.to_bytes(tuple(values))).hexdigest()


@pytest.mark.parametrize(("argument", "result"), FUNCTIONS["exponential"])
def test_exponential(argument: str, result: str) -> None:
    assert struct.pack(">d", binary32.exponential(double(argument))).hex() == result


@pytest.mark.parametrize(("argument", "result"), FUNCTIONS["silu"])
def test_silu(argument: str, result: str) -> None:
    assert struct.pack(">f", arithmetic.silu(single(argument))).hex() == result


@pytest.mark.parametrize(("terms", "result"), FUNCTIONS["pairwise"])
def test_sum(terms: list[str], result: str) -> None:
    numbers = binary32.padded([single(term) for term in terms], len(terms))
    (total,) = binary32.sums(numbers, len(numbers))
    assert struct.pack(">f", total).hex() == result


def test_rotary() -> None:
    cosines, sines = arithmetic.rotary(512)
    assert struct.pack(">2f", cosines[511], sines[511]).hex() == "bef17fe53f61bbb4"
    assert digest(cosines + sines) == (
        "3660270574fd4ba1ef8c051fb9d7edbe459fdccb9ab8c0dcb28d7e0a8bc632c8"
    )


def test_every_tensor_of_one_case() -> None:
    """All intermediate tensors of the vector, so that a fault shows at its first step."""
    seed, ranks, sequence = WHOLE["seed"], WHOLE["ranks"], WHOLE["sequence"]
    x = tensors.operand_values(seed, WHOLE["batch"] * sequence)
    made: dict[tuple[str, int | None, str], Sequence[float]] = {
        ("input", None, "x"): x,
        ("attention", None, "normed"): arithmetic.normed(x),
    }
    first = [arithmetic.attention(seed, ranks, rank, x, sequence) for rank in range(ranks)]
    for rank, each in enumerate(first):
        made |= {("attention", rank, name): value for name, value in vars(each).items()}
    total = arithmetic.total([each.partial for each in first], "pairwise")
    x1 = binary32.add(x, total)
    made |= {("attention", None, "total"): total, ("attention", None, "x1"): x1}
    made["mlp", None, "normed"] = arithmetic.normed(x1)
    second = [arithmetic.mlp(seed, ranks, rank, x1) for rank in range(ranks)]
    for rank, part in enumerate(second):
        made |= {("mlp", rank, name): value for name, value in vars(part).items()}
    total = arithmetic.total([part.partial for part in second], "pairwise")
    made |= {("mlp", None, "total"): total, ("mlp", None, "y"): binary32.add(x1, total)}
    for vector in WHOLE["tensors"]:
        key = (vector["stage"], vector["rank"], vector["tensor"])
        assert digest(made.pop(key)) == vector["sha256"], key
    assert made == {}


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_the_same_at_every_world_size(name: str, ranks: int) -> None:
    vector = RUNS[name]
    run = arithmetic.run(vector["seed"], ranks, vector["batch"], vector["sequence"], "pairwise")
    assert hashlib.sha256(run.result).hexdigest() == vector["tensors"][0]["sha256"]


@pytest.mark.parametrize("order", ["rank", "pairwise"])
def test_the_reference_is_near(order: str) -> None:
    wanted = reference.block(2, 2, 4)
    got = tensors.from_bytes(arithmetic.run(2, 4, 2, 4, order).result)
    assert max(abs(a - b) for a, b in zip(got, wanted, strict=True)) < 1e-6


def test_orders_differ_at_four_ranks() -> None:
    """Else the two orders of the matrix would say nothing."""
    runs = [arithmetic.run(1, 4, 2, 7, order) for order in ("rank", "pairwise")]
    assert runs[0].result != runs[1].result


def test_a_sequence_does_not_depend_on_its_batch_or_on_later_tokens() -> None:
    alone = tensors.from_bytes(arithmetic.run(1, 2, 1, 4, "rank").result)
    longer = tensors.from_bytes(arithmetic.run(1, 2, 1, 7, "rank").result)
    assert longer[: len(alone)] == alone
    assert reference.block(1, 1, 7)[: len(alone)] == reference.block(1, 1, 4)


@pytest.mark.parametrize(
    "partials",
    [
        [b"\0" * 4, b"\0" * 8],
        [b"\0" * 3, b"\0" * 3],
        [struct.pack("<f", 3e38)] * 2,
    ],
    ids=["lengths", "odd", "range"],
)
def test_what_has_no_sum(partials: list[bytes]) -> None:
    assert arithmetic.reduce_partials(partials, "rank") is None
