"""Golden answers through a service: prompts in chunks, side by side, over real processes.

The oracle's greedy tokens, and its log-probabilities of them, for seeded checkpoints of both
programs and for the shipped model; and long prompts in pieces of 512 while others come and go.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from coordinator.gates.live import Live, LiveOptions, Request, Worker, live
from coordinator.request import Outcome, RequestEvent
from errors import PeerError
from simulation import mutant_worker
from testdata.golden import golden_loader
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import SHAPES
from tools.python.tiers import mostly_exhaustive

# The gate of float32 logits (model/golden_gates.py, FLOAT32_MAX) bounds these as well.
LOGPROB_MAX: Final = 1e-2
# Where the best two are closer, float32 may choose the other and is then somewhere else.
GREEDY_GAP: Final = 1e-3
TINY: Final = Path(__file__).resolve().parent.parent.parent / "testdata" / "tiny-qwen35"
Golden = golden_loader.Sequence


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("golden")
    manifest = golden_loader.load_manifest()
    for name in ("base", "deep"):
        write_checkpoint(root / name, SHAPES[name], manifest.shapes[name].seed)
    return {name: root / name for name in ("base", "deep")} | {"tiny": TINY}


def ask(service: Live, sequence: Golden) -> Request:
    prompt = [int(token) for token in sequence.ids[: sequence.prompt]]
    return service.submit(prompt, len(sequence.gaps), logprobs=0)


def demand_golden(request: Request, sequence: Golden) -> None:
    """Raises AssertionError where the answer is not the oracle's."""
    assert request.end.outcome is Outcome.LENGTH
    rows = {int(p): row for p, row in zip(sequence.positions, sequence.logits64, strict=True)}
    for index, token in enumerate(request.tokens):
        position = sequence.prompt + index
        if sequence.gaps[index] <= GREEDY_GAP:
            return
        assert token.token_id == int(sequence.ids[position]), f"token {index}"
        logits = rows[position - 1]
        expected = logits[token.token_id] - np.logaddexp.reduce(logits)
        assert token.logprob is not None
        assert abs(token.logprob - float(expected)) <= LOGPROB_MAX, f"log-probability {index}"


def demand_all(service: Live, sequences: Sequence[Golden]) -> None:
    requests = [ask(service, sequence) for sequence in sequences]
    service.finish()
    service.demand_idle()
    for request, sequence in zip(requests, sequences, strict=True):
        demand_golden(request, sequence)


@pytest.mark.parametrize(
    ("program", "ranks"),
    mostly_exhaustive(
        [("qwen35/sharded", 1), ("qwen35/sharded", 2), ("qwen35/replicated", 2)],
        lambda case: case[1] == 2,
    ),
)
def test_seeded_checkpoints(folders: dict[str, Path], program: str, ranks: int) -> None:
    """Six prompts over three slots, in chunks of eight tokens beside decodes."""
    with live(folders["base"], LiveOptions(program=program, ranks=ranks, pages=80)) as service:
        demand_all(service, golden_loader.load_short("base")[:6])
        assert any(step.plan.moves for step in service.steps)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_the_shipped_model(folders: dict[str, Path], ranks: int) -> None:
    with live(folders["tiny"], LiveOptions(ranks=ranks, pages=60)) as service:
        demand_all(service, golden_loader.load_trained())


@pytest.mark.exhaustive
@pytest.mark.parametrize(("index", "tokens"), [(0, 4097), (1, 8192)])
def test_a_long_prompt(folders: dict[str, Path], index: int, tokens: int) -> None:
    """It starts in slot 1, moves to slot 0 in its middle and ends beside a decode."""
    sequence, _ = golden_loader.load_long("deep")[index]
    assert sequence.prompt == tokens
    flags = {"model.max_step_tokens": "512", "model.page_tokens": "16"}
    with live(folders["deep"], LiveOptions(flags=flags, pages=540)) as service:
        first = service.submit([1, 2, 3], 40)
        service.turns(1)
        long = ask(service, sequence)
        service.turns(4)
        service.end(first, RequestEvent.DISCONNECT)
        service.turns(2)
        late = service.submit([4, 5], 30)
        service.finish()
        demand_golden(long, sequence)
        assert late.end.outcome is Outcome.LENGTH
        moved = [move.request_id for step in service.steps for move in step.plan.moves]
        assert moved == [long.request_id, late.request_id]


@pytest.mark.parametrize(
    "mutation",
    mostly_exhaustive(
        ["chunk_forgets_conv", "move_leaves_conv", "shared_page"],
        lambda mutation: mutation == "chunk_forgets_conv",
    ),
)
def test_a_wrong_engine_is_noticed(folders: dict[str, Path], mutation: str) -> None:
    worker = Worker(mutant_worker.__name__, ("--mutation", mutation))
    options = LiveOptions(ranks=1, pages=80, worker=worker)
    with live(folders["base"], options) as service, pytest.raises((AssertionError, PeerError)):
        demand_all(service, golden_loader.load_short("base")[:6])
