"""Chunks whose text alone is encoded anew: the same bytes as when all is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.serving.api_server import TINY
from coordinator.serving.choice import Choice
from coordinator.serving.errors_http import json_bytes
from coordinator.serving.generation import Delta, Generation
from coordinator.serving.shapes import ChatShape, Chunks, CompletionShape, Shape
from coordinator.serving.text import ModelText
from coordinator.submission import Submission
from program.plan import Sampling

TEXT = ModelText.load(TINY)
SUBMISSION = Submission((1,), 1, Sampling())


@pytest.mark.parametrize("shape", [CompletionShape(TEXT), ChatShape(TEXT)])
@pytest.mark.parametrize("include_usage", [False, True])
@given(model=st.text(), text=st.text(alphabet=st.characters(exclude_categories=())))
def test_what_is_around_a_text(shape: Shape, include_usage: bool, model: str, text: str) -> None:
    chunks = Chunks({"id": "x", "model": model}, include_usage=include_usage)
    choice = Choice(3, SUBMISSION, Generation(TEXT, SUBMISSION), 0.0)
    before, after = chunks.around(lambda said: shape.piece(choice, Delta(said)))
    whole = chunks.chunk(shape.piece(choice, Delta(text)))
    assert before + json_bytes(text) + after == whole
