"""The binary64 reference of Qwen3.5 against what Hugging Face computes, on short prompts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oracle import qwen35
from testdata.golden import golden_loader
from testdata.golden.seeded_checkpoint import bfloat16_bits, stored_dtype, tensor
from testdata.golden.shapes import SHAPES, config
from testdata.golden.tensor_shapes import text_tensors

# As the engine's own gate in binary64.
GATE = 1e-9
LONGEST = 3


def weights_of(name: str) -> dict[str, list[list[float]]]:
    """The seeded weights as nested lists, rounded as their checkpoint stores them."""
    shape = SHAPES[name]
    seed = golden_loader.load_manifest().shapes[name].seed
    found = {}
    for weight, size in text_tensors(shape).items():
        values = tensor(shape, seed, weight, size)
        if stored_dtype(shape, weight) == "BF16":
            values = (bfloat16_bits(values).astype(np.uint32) << 16).view(np.float32)
        rows = values.astype(np.float64).reshape(size[0] if len(size) > 1 else 1, -1)
        found[weight] = rows.tolist()
    return found


def shape_of(name: str) -> qwen35.Shape:
    return qwen35.Shape.of(json.loads(json.dumps(config(SHAPES[name]))))


def largest_difference(
    name: str, shape: qwen35.Shape, weights: dict[str, Any], longest: int
) -> float:
    """Over the sequences of at most `longest` prompt tokens."""
    worst = 0.0
    for sequence in golden_loader.load_short(name):
        if sequence.prompt <= longest:
            found = np.array(qwen35.logits(shape, weights, sequence.ids.tolist()))
            difference = np.abs(found[sequence.positions] - sequence.logits64)
            worst = max(worst, float(difference.max()))
    return worst


@pytest.mark.parametrize("name", ["base", "conv3", "value_3x", "bf16_public"])
def test_the_reference_is_that_of_hugging_face(name: str) -> None:
    assert largest_difference(name, shape_of(name), weights_of(name), LONGEST) <= GATE


@pytest.mark.parametrize(
    "change",
    [
        {"rms_norm_eps": 1e-5},
        {"rope_theta": 1e6},
        {"rotary_dim": 8},
        {"sigmoid_gate": True},
        {"layer_types": ("linear_attention",) * 3},
    ],
)
def test_every_field_that_is_wrong_shows(change: dict[str, Any]) -> None:
    shape = replace(shape_of("base"), **change)
    assert largest_difference("base", shape, weights_of("base"), longest=2) > 1e-6


def test_the_functions_at_their_ends() -> None:
    assert qwen35.softplus(800.0) == 800.0
    assert qwen35.softplus(-800.0) == 0.0
    assert qwen35.sigmoid(-800.0) == 0.0
    assert qwen35.sigmoid(800.0) == 1.0
    assert qwen35.softmax([1000.0, 1000.0]) == [0.5, 0.5]
    assert math.isclose(qwen35.silu(1.0), 1 / (1 + math.exp(-1)))
