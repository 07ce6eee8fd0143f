"""A template gives, for every step, the bytes that encoding gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import MisuseError
from wire.metadata import Command, Result
from wire.step_template import StepTemplate


@given(step=st.integers(0, 2**53 - 1), phase=st.text(max_size=20))
def test_command_as_encoded(step: int, phase: str) -> None:
    def encoded(at: int) -> bytes:
        return Command(phase=phase, plan=None, rank=3, step=at).to_bytes()

    assert StepTemplate(encoded(0)).at(step) == encoded(step)


@given(step=st.integers(0, 2**53 - 1))
def test_result_as_encoded(step: int) -> None:
    def encoded(at: int) -> bytes:
        return Result(
            dtype="<f4",
            phase="result",
            rank=0,
            report=None,
            shape=(2, 7, 16),
            step=at,
            tensor='"step":0',
        ).to_bytes()

    assert StepTemplate(encoded(0)).at(step) == encoded(step)


@pytest.mark.parametrize("metadata", [b"{}", b'{"step":1}', b'{"plan":{"step":0},"step":0}'])
def test_other_metadata_is_our_mistake(metadata: bytes) -> None:
    with pytest.raises(MisuseError):
        StepTemplate(metadata)
