"""A real model over real worker processes: observation changes no byte, and sees every step."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from coordinator.engine import Engine
from coordinator.engine_inbox import Inbox
from coordinator.fake_ranks import ListOutbox
from coordinator.model_cases import bindings, model_run, small_model
from coordinator.model_setup import set_up
from coordinator.scheduler import Scheduler
from coordinator.service_run import served_model
from coordinator.step_timing import COORDINATOR, Doing, ObservedStep, SpanKind, StepObserver
from coordinator.submission import Submission
from program.plan import Sampling
from program.spec import LOAD_PHASE
from wire.frame import Kind
from wire.ledger import Entry
from wire.recorder import Recorder
from wire.tape import TapeRecord, read_tape

# (prompt, max_tokens) of requests that share steps.
REQUESTS = ((5, 4), (2, 6), (9, 1))


class Watching:
    def __init__(self) -> None:
        self.steps: list[ObservedStep] = []

    def began(self, world_size: int, doing: Doing) -> None:
        assert world_size == 2

    def stepped(self, step: ObservedStep) -> None:
        self.steps.append(step)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "small")


def served(
    folder: Path, recorder: Recorder, observer: StepObserver | None
) -> tuple[list[list[int]], int]:
    """The tokens of each request, and how many steps it took."""
    manifest = model_run(folder, model__max_batch="3")
    given = bindings()
    setup = set_up(manifest, given.machine, 64)
    with served_model(setup, manifest, given, recorder, observer=observer) as model:
        inbox = Inbox(9, model.wake.set)
        scheduler = Scheduler(setup.capacity.limits, step_tokens=8, waiting_max=9)
        engine = Engine(model.ranks, scheduler, inbox, heartbeat_s=1e6, clock=time.monotonic)
        outboxes = [ListOutbox() for _ in REQUESTS]
        for outbox, (prompt, max_tokens) in zip(outboxes, REQUESTS, strict=True):
            inbox.submit(Submission((7,) * prompt, max_tokens, Sampling()), outbox)
        while engine.turn():
            pass
        assert engine.failure is None
        return [outbox.token_ids for outbox in outboxes], engine.snapshot.steps


def without_load_reports(recorder: Recorder) -> list[tuple[Entry, TapeRecord]]:
    """What a rank says of its own load is of its times and memory: other bytes in every run."""
    pairs = zip(recorder.entries(), read_tape(recorder.tape()), strict=True)
    return [
        (entry, record)
        for entry, record in pairs
        if not (entry.kind == Kind.FENCE.name and entry.phase == LOAD_PHASE)
    ]


def test_ledger_and_tape_of_a_model_do_not_depend_on_observation(folder: Path) -> None:
    plain, observed, watching = Recorder(), Recorder(), Watching()
    tokens, steps = served(folder, plain, None)
    assert served(folder, observed, watching) == (tokens, steps)
    assert [len(one) for one in tokens] == [max_tokens for _, max_tokens in REQUESTS]
    found = without_load_reports(observed)
    assert found == without_load_reports(plain)
    assert len(found) == plain.frames - 2
    assert len(watching.steps) == steps


def test_lanes_of_real_ranks_cover_every_step(folder: Path) -> None:
    watching = Watching()
    served(folder, Recorder(False, recent_bytes=1 << 20), watching)
    for step in watching.steps:
        spans = step.spans()
        for rank in range(2):
            at = step.start
            for span in spans:
                if span.lane == rank:
                    assert span.start == at
                    assert span.end > span.start
                    at = span.end
            assert at == step.end
            kinds = {span.kind for span in spans if span.lane == rank}
            assert {SpanKind.COMPUTE, SpanKind.WIRE} <= kinds
        sums = [span for span in spans if span.lane == COORDINATOR]
        phases = [record.phase for record in step.records if record.header is not None]
        assert [span.phase for span in sums] == [
            phase for phase in dict.fromkeys(phases) if phase.startswith("layers.")
        ]
        for one, following in pairwise(sums):
            assert one.end <= following.start
