"""The oracle's gates must fail on every fault of the mathematics that we can think of."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest

from oracle import block as oracle

SEED, BATCH, SEQUENCE = 3, 2, 7
Matrix = list[list[float]]
Plant = Callable[[pytest.MonkeyPatch], None]

true_weights, true_rotate_heads = oracle.weights, oracle.rotate_heads


def float32_bytes(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def computed(seed: int, batch: int, sequence: int) -> list[float]:
    """The block as the module's functions compute it now, past the cache."""
    return oracle.block(oracle.input_tensor(seed, batch, sequence), oracle.weights(seed))


def test_the_rounded_reference_passes_without_alarm() -> None:
    judgement = oracle.judge(
        float32_bytes(oracle.reference(SEED, BATCH, SEQUENCE)), SEED, BATCH, SEQUENCE
    )
    assert judgement.passed
    assert not judgement.alarm
    assert 0.0 < judgement.max_abs_error < 2e-7


def constant(name: str, value: float) -> Plant:
    return lambda patch: patch.setattr(oracle, name, value)


def function(name: str, replacement: Callable[..., object]) -> Plant:
    return lambda patch: patch.setattr(oracle, name, replacement)


def swapped_weights(first: str, second: str) -> Plant:
    def swapped(seed: int) -> dict[str, Matrix]:
        w = true_weights(seed)
        w[first], w[second] = w[second], w[first]
        return w

    return function("weights", swapped)


def transposed_output(seed: int) -> dict[str, Matrix]:
    w = true_weights(seed)
    w["wo"] = [list(column) for column in zip(*w["wo"], strict=True)]
    return w


def attention_without_residual(x: list[Matrix], w: dict[str, Matrix]) -> list[float]:
    output: list[float] = []
    for tokens in x:
        attended = oracle.attention([oracle.rms_norm(token) for token in tokens], w)
        for mixed in attended:
            middle = oracle.apply(w["wo"], mixed)
            output += [
                a + b for a, b in zip(middle, oracle.mlp(oracle.rms_norm(middle), w), strict=True)
            ]
    return output


FAULTS: dict[str, Plant] = {
    "score scale missing": constant("SCORE_SCALE", 1.0),
    "score scale of another head size": constant("SCORE_SCALE", 0.5),
    "eps missing": constant("RMS_EPS", 0.0),
    "eps of another model": constant("RMS_EPS", 1e-5),
    "rotary missing": function("rotate_heads", lambda flat, position: true_rotate_heads(flat, 0)),
    "rotary turns backwards": function(
        "rotate_heads", lambda flat, position: true_rotate_heads(flat, -position)
    ),
    "rotary positions doubled": function(
        "rotate_heads", lambda flat, position: true_rotate_heads(flat, 2 * position)
    ),
    "causal mask missing": function("visible_keys", lambda position, length: range(length)),
    "own position not seen": function(
        "visible_keys", lambda position, length: range(max(position, 1))
    ),
    "query heads interleaved over KV heads": function(
        "kv_head_of", lambda head: head % oracle.KV_HEADS
    ),
    "one KV head for all": function("kv_head_of", lambda head: 0),
    "gate is a sigmoid": function("silu", lambda g: 1.0 / (1.0 + math.exp(-g))),
    "gate is a ReLU": function("silu", lambda g: max(g, 0.0)),
    "norm missing": function("rms_norm", lambda token: token),
    "keys and values swapped": swapped_weights("wk", "wv"),
    "gate and up swapped": swapped_weights("w_gate", "w_up"),
    "output projection transposed": function("weights", transposed_output),
    "residual missing": function("block", attention_without_residual),
    "weights of another seed": function("weights", lambda seed: true_weights(seed + 1)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_the_gates(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle.reference(SEED, BATCH, SEQUENCE)
    with monkeypatch.context() as patch:
        FAULTS[fault](patch)
        faulty = float32_bytes(computed(SEED, BATCH, SEQUENCE))
    judgement = oracle.judge(faulty, SEED, BATCH, SEQUENCE)
    assert not judgement.passed, judgement
    assert judgement.alarm


def test_errors_just_beyond_each_limit() -> None:
    limits = oracle.MAX_ABS_GATE, oracle.RELATIVE_L2_GATE
    assert oracle.Judgement(*limits).passed
    assert not oracle.Judgement(limits[0] * 1.01, 0.0).passed
    assert not oracle.Judgement(0.0, limits[1] * 1.01).passed
    assert not oracle.Judgement(oracle.ALARM, oracle.ALARM).alarm
    assert oracle.Judgement(oracle.ALARM * 1.01, 0.0).alarm
    assert oracle.Judgement(0.0, oracle.ALARM * 1.01).alarm


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_fails(value: float) -> None:
    values = oracle.reference(SEED, 1, 1)
    values[5] = value
    judgement = oracle.judge(float32_bytes(values), SEED, 1, 1)
    assert not judgement.passed
    assert judgement.alarm


@pytest.mark.parametrize("size", [0, 63, 65, 128])
def test_an_output_of_another_size_is_not_judged(size: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        oracle.judge(bytes(size), SEED, 1, 1)


@pytest.mark.parametrize(
    ("seed", "batch", "sequence"), [(-1, 1, 1), (2**53, 1, 1), (1, 0, 1), (1, 1, 0)]
)
def test_arguments_out_of_range_are_refused(seed: int, batch: int, sequence: int) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        oracle.reference(seed, batch, sequence)


def test_a_longer_sequence_leaves_earlier_outputs_alone() -> None:
    """Causality, and element i of x depends on i alone."""
    longer = oracle.reference(SEED, 1, 7)
    assert oracle.reference(SEED, 1, 4) == longer[: 4 * oracle.HIDDEN]
