"""Rows that sample share the product with the head, and each gets its own logits.

The head is the largest weight of a model; how often a step reads it is counted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from model.golden_gates import Folders
from model.linear import Linear
from model.lockstep import Lockstep, open_ranks
from model.ops import Array
from model.qwen35 import LOGIT_ROWS
from program.artifacts import SampledToken
from program.plan import Admit, Row, Sample, Sampling, Score, StepPlan
from program.qwen35 import Variant

# Of which some sample, some score and some want nothing.
REQUESTS = LOGIT_ROWS + 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Folders(tmp_path_factory.mktemp("golden"))[
        "conv2"
    ]  # no other matrix has as many rows as its head


def opened(folder: Path) -> Lockstep:
    return open_ranks(folder, Variant.SHARDED, 2, slots=REQUESTS, pages=REQUESTS)


def token_ids(slot: int) -> tuple[int, ...]:
    """Prompts of 1 to 3 tokens, so that a row's place is not its number."""
    return tuple((11 * slot + 5 * position + 2) % 97 for position in range(1 + slot % 3))


def wanted(slot: int) -> Sample | Score | None:
    """Every fourth row wants nothing, and every fifth scores."""
    if slot % 4 == 3:
        return None
    return Score(last=1, top=1) if slot % 5 == 4 else Sample(logprobs=1)


def run(ranks: Lockstep) -> tuple[tuple[Row, ...], list[SampledToken]]:
    admissions = tuple(
        Admit(slot, 100 + slot, slot + 1, (slot,), len(token_ids(slot)), 8, Sampling())
        for slot in range(REQUESTS)
    )
    rows = tuple(
        Row(100 + slot, slot, 0, token_ids(slot), wanted(slot)) for slot in range(REQUESTS)
    )
    outcome = ranks.step(StepPlan(0, admissions=admissions, rows=rows))
    return rows, [found for found in outcome.artifacts if isinstance(found, SampledToken)]


def test_each_row_samples_from_its_own_logits(folder: Path) -> None:
    ranks = opened(folder)
    rows, sampled = run(ranks)
    sampling = [row for row in rows if isinstance(row.artifact, Sample)]
    assert [found.request_id for found in sampled] == [row.request_id for row in sampling]
    for row, found in zip(sampling, sampled, strict=True):
        logits = ranks.logits(row)[-1].astype(np.float64)
        best = int(logits.argmax())
        assert found.token_id == best
        assert found.logprob == pytest.approx(logits[best] - np.log(np.exp(logits).sum()), abs=1e-5)
    assert len({found.token_id for found in sampled}) > 1


def test_the_head_is_read_once_for_many_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = opened(folder)
    read: list[int] = []
    product = Linear.__call__

    def counted(self: Linear, x: Array) -> Array:
        if self.out_features == ranks.config.vocab_size:
            read.append(len(x))
        return product(self, x)

    monkeypatch.setattr(Linear, "__call__", counted)
    rows, sampled = run(ranks)
    scored = sum(isinstance(row.artifact, Score) for row in rows)
    # One product for each row that scores, and one for up to LOGIT_ROWS of those that sample.
    assert sorted(read) == sorted([1] * scored + [len(sampled)])
    assert len(sampled) <= LOGIT_ROWS


def test_more_rows_than_may_exist_at_once_are_cut(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(opened(folder))[1]
    monkeypatch.setattr("model.qwen35.LOGIT_ROWS", 3)
    assert [found.token_id for found in run(opened(folder))[1]] == [
        found.token_id for found in expected
    ]
