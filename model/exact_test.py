"""Every operation against the scalar reference, bit for bit, and against the truth."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import MisuseError
from model import block_scalar as scalar
from model.exact import (
    F32,
    F64,
    CausalSoftmax,
    Exponential,
    Linear,
    PairwiseSum,
    RmsNorm,
    Rotary,
    SiluGate,
    bit_reversed,
    padded_width,
    reversed_bit_axes,
    rotary_table,
)

FUNCTIONS = json.loads(Path("testdata/vectors/block.json").read_text("ascii"))["functions"]
SPEC_TEXT = Path("docs/spec/program.md").read_text("utf-8")
float32s = st.floats(-1e6, 1e6, width=32)


def drawn(shape: tuple[int, ...], seed: int, scale: float = 1.0) -> F32:
    """Seeded normal values: the tests' own choice of numbers, not the product's."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def number(digits: str) -> float:
    value: float = struct.unpack(">f" if len(digits) == 8 else ">d", bytes.fromhex(digits))[0]
    return value


def pairwise(values: list[float]) -> float:
    width = padded_width(len(values))
    padded = values + [0.0] * (width - len(values))
    terms = np.array(padded, np.float32)[bit_reversed(width)]
    out = np.empty((), np.float32)
    PairwiseSum(terms, out)()
    return float(out)


def exponential(values: list[float]) -> F64:
    x = np.clip(np.array(values, np.float64), -150.0, 150.0)
    out = np.empty_like(x)
    Exponential(x, out)()
    return out


@pytest.mark.parametrize("width", [1, 2, 4, 8, 512])
def test_bit_reversed_order_is_a_permutation_that_undoes_itself(width: int) -> None:
    order = bit_reversed(width)
    assert sorted(order) == list(range(width))
    assert [order[index] for index in order] == list(range(width))
    assert reversed_bit_axes(np.arange(float(width))).reshape(-1).tolist() == order


@pytest.mark.parametrize("length", [3, 6, 7])
def test_an_axis_that_is_no_power_of_two_is_a_mistake_of_ours(length: int) -> None:
    with pytest.raises(MisuseError):
        reversed_bit_axes(np.zeros(length))


@given(st.lists(float32s, min_size=1, max_size=40))
def test_pairwise_sum_adds_neighbours(values: list[float]) -> None:
    assert struct.pack("<f", pairwise(values)) == struct.pack("<f", scalar.pairwise(values))


@pytest.mark.parametrize(("terms", "total"), FUNCTIONS["pairwise"])
def test_pairwise_vectors(terms: list[str], total: str) -> None:
    assert pairwise([number(term) for term in terms]) == number(total)
    assert f"`{total}`" in SPEC_TEXT


def test_pairwise_sum_keeps_its_terms_when_it_has_scratch() -> None:
    terms = drawn((8, 3), 1)
    kept, out = terms.copy(), np.empty(3, np.float32)
    PairwiseSum(terms, out, scratch=np.empty((4, 3), np.float32))()
    assert terms.tobytes() == kept.tobytes()
    PairwiseSum(terms, kept[0])()
    assert out.tobytes() == kept[0].tobytes()


@pytest.mark.parametrize("rows", [(1,), (2, 7)])
@pytest.mark.parametrize("columns", [(8,), (2, 6)])
def test_linear(rows: tuple[int, ...], columns: tuple[int, ...]) -> None:
    x, weight = drawn((*rows, 16), 2), drawn((*columns, 16), 3)
    out = np.empty((*rows, *columns), np.float32)
    Linear(x, weight, out)()
    flat = out.reshape(-1, math.prod(columns))
    matrix = weight.reshape(-1, 16).tolist()
    expected = [scalar.linear(matrix, row) for row in x.reshape(-1, 16).tolist()]
    assert flat.tobytes() == np.array(expected, np.float32).tobytes()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_rms_norm(scale: float) -> None:
    x = drawn((2, 3, 16), 4, scale)
    out = np.empty_like(x)
    RmsNorm(x, out, 1e-6)()
    expected = [scalar.rms_norm(row) for row in x.reshape(-1, 16).tolist()]
    assert out.tobytes() == np.array(expected, np.float32).tobytes()


@given(st.lists(st.floats(-200.0, 200.0), min_size=1, max_size=20))
def test_exponential_is_the_scalar_one(values: list[float]) -> None:
    expected = np.array([scalar.exponential(value) for value in values])
    assert exponential(values).tobytes() == expected.tobytes()


@settings(max_examples=300)
@given(st.floats(-150.0, 150.0))
def test_exponential_is_within_2_to_the_minus_34(value: float) -> None:
    with localcontext() as context:
        context.prec = 40
        truth = Decimal(value).exp()
        error = abs(Decimal(float(exponential([value])[0])) / truth - 1)
    assert error < Decimal(2) ** -34


def test_exponential_vectors() -> None:
    for x, power in FUNCTIONS["exponential"]:
        assert f"`{power}`" in SPEC_TEXT
        assert exponential([number(x)])[0] == number(power)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 1e6])
def test_silu_gate(scale: float) -> None:
    gate, up = drawn((3, 24), 5, scale), drawn((3, 24), 6)
    out = np.empty_like(gate)
    SiluGate(gate, up, out)()
    pairs = zip(gate.reshape(-1).tolist(), up.reshape(-1).tolist(), strict=True)
    expected = [scalar.f32(scalar.silu(g) * u) for g, u in pairs]
    assert out.tobytes() == np.array(expected, np.float32).tobytes()
    truth = gate / (1.0 + np.exp(np.minimum(-gate.astype(np.float64), 700.0))) * up
    np.testing.assert_allclose(out, truth, rtol=2.5e-7, atol=1e-40)


def test_silu_vectors() -> None:
    for gate, result in FUNCTIONS["silu"]:
        assert f"`{result}`" in SPEC_TEXT
        out = np.empty(1, np.float32)
        one = np.ones(1, np.float32)
        SiluGate(np.array([number(gate)], np.float32), one, out)()
        assert float(out[0]) == number(result)


@pytest.mark.parametrize("sequence", [1, 2, 3, 5, 7, 8, 11])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_causal_softmax(sequence: int, scale: float) -> None:
    keys = padded_width(sequence)
    table = drawn((3, sequence, keys), 7, scale)
    stored = np.ascontiguousarray(table.transpose(2, 0, 1)[bit_reversed(keys)])
    out = np.empty_like(stored)
    CausalSoftmax(stored, out, scalar.SCORE_SCALE)()
    probability = out[bit_reversed(keys)].transpose(1, 2, 0)
    assert not probability[:, :, sequence:].any()
    expected = [
        [scalar.probabilities(row[:sequence], position) for position, row in enumerate(rows)]
        for rows in table.tolist()
    ]
    wanted = np.array(expected, np.float32)
    assert np.ascontiguousarray(probability[:, :, :sequence]).tobytes() == wanted.tobytes()


def test_a_number_that_is_not_finite_is_not_hidden() -> None:
    scores = np.zeros((2, 1, 2), np.float32)
    scores[0, 0, 1] = np.nan
    out = np.empty_like(scores)
    CausalSoftmax(scores, out, 1.0)()
    assert np.isnan(out[:, 0, 1]).all()
    gated = np.empty(1, np.float32)
    SiluGate(np.full(1, np.nan, np.float32), np.ones(1, np.float32), gated)()
    assert np.isnan(gated).all()


def sine_and_cosine(position: int) -> tuple[float, float]:
    """Correctly rounded to binary64, by Taylor's series in 300 digits."""
    with localcontext() as context:
        context.prec = 300
        x, small = Decimal(position), Decimal(10) ** -30
        term, sums, power = Decimal(1), [Decimal(0), Decimal(0)], 0
        while abs(term) > small or power <= position:
            sums[power % 2] += -term if power % 4 > 1 else term
            power += 1
            term = term * x / power
        return float(sums[1]), float(sums[0])


def test_the_rotary_table_is_correctly_rounded() -> None:
    cosine, sine = rotary_table(512)
    truth = np.array([sine_and_cosine(position) for position in range(512)], np.float32)
    assert sine.tobytes() == truth[:, 0].tobytes()
    assert cosine.tobytes() == truth[:, 1].tobytes()
    assert [scalar.angle(p) for p in (0, 1, 511)] == [(cosine[p], sine[p]) for p in (0, 1, 511)]
    assert float(cosine[511]) == number(FUNCTIONS["rotary"]["cosine_511"])
    assert float(sine[511]) == number(FUNCTIONS["rotary"]["sine_511"])


def test_rotary() -> None:
    x = drawn((2, 3, 5), 8)
    out = np.empty_like(x)
    Rotary(x, out)()
    for position in range(5):
        heads = x[:, :, position].T.reshape(-1).tolist()
        turned = scalar.rotate(heads, position)
        assert out[:, :, position].T.reshape(-1).tolist() == turned
