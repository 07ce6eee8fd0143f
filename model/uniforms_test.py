"""Philox against the published vectors, and uniforms against the stated construction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.uniforms import philox4x32, uniform

# The known-answer tests that the authors of Philox publish (Random123, philox4x32, 10 rounds).
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
SEEDS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_published_vectors(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, int, int, int]
) -> None:
    assert philox4x32(counter, key) == expected


def test_the_check_values_of_the_document() -> None:
    """docs/spec/plan.md, L24."""
    text = Path("docs/spec/plan.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) \| `([-0-9a-fx.p+]+)` \|$", text, re.MULTILINE)
    assert len(rows) == 5
    for seed, position, expected in rows:
        assert uniform(int(seed), int(position)).hex() == expected


def test_uniform_is_built_from_the_first_two_words() -> None:
    words = philox4x32((7, 0, 0, 0), (5, 9))
    assert uniform(5 + (9 << 32), 7) == ((words[0] << 21) | (words[1] >> 11)) / 2**53


@given(SEEDS, st.integers(0, 2**53))
def test_uniform_is_in_the_half_open_unit_interval(seed: int, position: int) -> None:
    value = uniform(seed, position)
    assert 0.0 <= value < 1.0
    assert value * 2**53 == int(value * 2**53)


@given(SEEDS, st.integers(0, 2**40))
def test_seed_and_position_both_matter(seed: int, position: int) -> None:
    values = {
        uniform(seed, position),
        uniform(seed, position + 1),
        uniform(seed ^ 1, position),
        uniform(seed ^ (1 << 63), position),
    }
    assert len(values) == 4


def test_uniforms_fill_the_interval_evenly() -> None:
    """Chi-square over 64 cells; 120 is beyond the 1 - 10^-5 quantile of 63 degrees of freedom."""
    cells = [0] * 64
    count = 12_800
    for position in range(count):
        cells[int(uniform(42, position) * 64)] += 1
    expected = count / 64
    assert sum((n - expected) ** 2 / expected for n in cells) < 120
