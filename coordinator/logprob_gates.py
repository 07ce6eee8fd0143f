"""The gates between log-probabilities that `score` gives and the golden logits (program.md, Q13).

`score` gives binary32, so a binary64 engine is held against the reference to 1e-9 and half a unit
in the last place of binary32: what rounding the right value can add, and nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from coordinator.command_score import ScoreResult
from testdata.golden import golden_loader

FLOAT64_MAX: Final = 1e-9
FLOAT32_RELATIVE_L2: Final = 5e-5
FLOAT32_P99: Final = 5e-4
FLOAT32_MAX: Final = 1e-2
# Where the reference's best two are closer than this, binary32 may choose the other.
GREEDY_GAP: Final = 1e-3

Float64 = npt.NDArray[np.float64]


def log_softmax(logits: npt.NDArray[np.floating]) -> Float64:
    """Natural log-softmax of each row, in binary64."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(axis=1, keepdims=True)
    normalised: Float64 = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normalised


def expected(sequences: Sequence[golden_loader.Sequence]) -> Float64:
    """The reference's log-probabilities, all rows of all sequences: [rows, vocabulary]."""
    return np.concatenate([log_softmax(sequence.logits64) for sequence in sequences])


def every_row(result: ScoreResult) -> Float64:
    """Every token's log-probability at every scored position: [positions, vocabulary].

    Only of a result whose `top` is the vocabulary. Raises AssertionError for a token that is
    missing or out of order.
    """
    rows = np.full((len(result.positions), len(result.positions[0].top)), np.nan)
    for row, scored in zip(rows, result.positions, strict=True):
        values = [entry.logprob for entry in scored.top]
        if sorted(entry.token_id for entry in scored.top) != list(range(len(row))):
            raise AssertionError(f"position {scored.position} has other tokens")
        if values != sorted(values, reverse=True):
            raise AssertionError(f"position {scored.position} is not in falling order")
        row[[entry.token_id for entry in scored.top]] = values
    return rows


def found(results: Sequence[ScoreResult], sequences: Sequence[golden_loader.Sequence]) -> Float64:
    """The rows that the goldens have: [rows, vocabulary]."""
    parts = []
    for result, sequence in zip(results, sequences, strict=True):
        first = result.positions[0].position
        parts.append(every_row(result)[sequence.positions - first])
    return np.concatenate(parts)


@dataclass(frozen=True)
class Differences:
    """How far log-probabilities are from a reference's, over all rows and tokens.

    regret: what the reference thinks the engine's greedy choices lose, in nats: mean and largest.
    wrong_choices: other greedy choices where the reference's best two are further apart than
    GREEDY_GAP.
    """

    relative_l2: float
    mean: float
    p99: float
    largest: float
    regret_mean: float
    regret_max: float
    wrong_choices: int

    @classmethod
    def between(cls, engine: Float64, reference: Float64) -> Differences:
        difference = np.abs(engine - reference)
        best = np.sort(reference, axis=1)[:, -2:]
        chosen = np.take_along_axis(reference, engine.argmax(axis=1)[:, None], axis=1)[:, 0]
        regret = best[:, 1] - chosen
        gap = best[:, 1] - best[:, 0]
        return cls(
            relative_l2=float(np.linalg.norm(difference) / np.linalg.norm(reference)),
            mean=float(difference.mean()),
            p99=float(np.percentile(difference, 99)),
            largest=float(difference.max()),
            regret_mean=float(regret.mean()),
            regret_max=float(regret.max()),
            wrong_choices=int(((regret > 0) & (gap > GREEDY_GAP)).sum()),
        )

    def __str__(self) -> str:
        return (
            f"relative L2 {self.relative_l2:.1e}, mean {self.mean:.1e}, p99 {self.p99:.1e}, "
            f"max {self.largest:.1e}, regret mean {self.regret_mean:.1e} max {self.regret_max:.1e}"
        )


def float32_gate(differences: Differences) -> None:
    """Raises AssertionError outside the gates of binary32; a NaN is outside."""
    within = (
        differences.relative_l2 <= FLOAT32_RELATIVE_L2
        and differences.p99 <= FLOAT32_P99
        and differences.largest <= FLOAT32_MAX
        and differences.wrong_choices == 0
    )
    if not within:
        raise AssertionError(f"outside the gates of binary32: {differences}")


def float64_gate(engine: Float64, reference: Float64) -> None:
    """Raises AssertionError unless every value is the reference's to 1e-9, rounded to binary32."""
    rounding = np.spacing(np.abs(reference).astype(np.float32)).astype(np.float64) / 2
    excess = np.abs(engine - reference) - rounding
    if not (excess <= FLOAT64_MAX).all():
        raise AssertionError(f"{np.nanmax(excess):.1e} beyond rounding, gate {FLOAT64_MAX:.0e}")
