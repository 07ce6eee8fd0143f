"""`plan` says what a model would hold and send, from headers alone: here of the published 4B."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.command_plan import plan, render_plan, render_plan_json
from coordinator.model_cases import FOUR_B, large_model, model_run
from coordinator.model_setup import RESERVE_BYTES, Machine

GIB = 1 << 30
MACHINE = Machine(memory_bytes=24 * GIB, processors=frozenset({0, 1}))
KEYS = {
    "program",
    "tp",
    "layers",
    "collectives_per_step",
    "payload_bytes_per_token",
    "framing_bytes_per_step",
    "slots",
    "pages",
    "page_tokens",
    "tokens_per_step",
    "context_tokens",
    "skipped_tensors",
    "ranks",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8.4 GB of weights that take no room."""
    return large_model(tmp_path_factory.mktemp("model") / "model", FOUR_B)


def planned(folder: Path, **fields: object) -> dict[str, Any]:
    text = render_plan_json(plan(model_run(folder, **fields), lambda: MACHINE))
    assert text.count("\n") == 1
    document: dict[str, Any] = json.loads(text)
    return document


@pytest.mark.parametrize(
    ("program", "collectives", "payload"),
    [("qwen35/sharded", 64, 2_621_440), ("qwen35/replicated", 40, 1_638_400)],
)
def test_collectives_and_bytes_of_a_token(
    folder: Path, program: str, collectives: int, payload: int
) -> None:
    document = planned(folder, program=program)
    assert set(document) == KEYS
    assert document["collectives_per_step"] == collectives
    assert document["payload_bytes_per_token"] == payload
    # Four frames of 36 bytes and their metadata for each stage, over two ranks.
    assert 4 * 36 * collectives < document["framing_bytes_per_step"] < 4 * 200 * collectives


@pytest.mark.parametrize(
    ("program", "ranks", "recurrent", "conv"),
    [
        ("qwen35/sharded", 1, 48.0, 2.25),
        ("qwen35/sharded", 2, 24.0, 1.125),
        ("qwen35/sharded", 4, 12.0, 0.5625),
        ("qwen35/replicated", 4, 48.0, 2.25),
    ],
)
def test_state_of_one_request(
    folder: Path, program: str, ranks: int, recurrent: float, conv: float
) -> None:
    document = planned(folder, program=program, ranks=ranks)
    for rank in document["ranks"]:
        assert rank["recurrent_bytes"] == recurrent * 2**20 * document["slots"]
        assert rank["conv_bytes"] == conv * 2**20 * document["slots"]
        kv = 65_536 // ranks * document["pages"] * document["page_tokens"]
        assert rank["kv_bytes"] == kv


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_fills_its_budget_and_no_more(folder: Path, ranks: int) -> None:
    document = planned(folder, ranks=ranks, model__max_batch=4)
    assert document["slots"] == 4
    for rank in document["ranks"]:
        parts = ("weight", "kv", "recurrent", "conv", "scratch", "reserve")
        used = sum(rank[f"{part}_bytes"] for part in parts)
        assert used <= rank["memory_bytes"] == 24 * GIB // ranks
        assert rank["reserve_bytes"] == RESERVE_BYTES


def test_weights_of_a_rank(folder: Path) -> None:
    """Bfloat16 as stored, with the embedding on every rank; twice as much when widened."""
    sizes = {}
    for held in ("auto", "float32"):
        document = planned(folder, model__weights_dtype=held)
        sizes[held] = document["ranks"][0]["weight_bytes"]
    assert sizes["auto"] == pytest.approx(2 * (4_205_751_296 + 635_699_200) / 2, rel=0.001)
    assert sizes["float32"] == pytest.approx(2 * sizes["auto"], rel=0.001)


def test_the_page_has_a_row_for_each_rank_and_fits_a_terminal(folder: Path) -> None:
    page = render_plan(plan(model_run(folder, ranks=4), lambda: MACHINE))
    lines = page.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[3:7]] == ["0", "1", "2", "3"]
    assert any(line.startswith("collectives  64 ") for line in lines)
