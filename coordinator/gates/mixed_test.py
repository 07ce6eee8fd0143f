"""A long prompt advances by chunks beside a decode, which ends; slots close up; a newcomer enters.

However the decode ends, everybody's answer is as alone, no decode waits longer than a chunk, and
the order of collectives is the program's in every step, whoever comes and goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from coordinator.gates.compare import demand_same
from coordinator.gates.exits import CLIENT_EVENTS
from coordinator.gates.live import Live, LiveOptions, Request, Step, Worker, gate_model, live
from coordinator.group import Group
from coordinator.request import Outcome, RequestEvent
from errors import PeerError
from program.plan import StepPlan
from simulation import mutant_worker
from testdata.golden.seeded_checkpoint import tokens
from tools.python.tiers import mostly_exhaustive
from wire.canonical import JsonObject
from wire.ledger import RECEIVE
from wire.recorder import Record, Recorder

LAYOUTS = [("qwen35/sharded", 1), ("qwen35/sharded", 2), ("qwen35/replicated", 2)]
BUDGET = 8


def prompt_of(name: str, length: int) -> list[int]:
    return [int(token) for token in tokens(11, name, length, 96)]


DECODING, LONG, MOVING, LATE = (
    prompt_of("decoding", 3),
    prompt_of("long", 50),
    prompt_of("moving", 4),
    prompt_of("late", 9),
)
# None: it reaches its length.
WAYS: list[RequestEvent | None] = [None, *CLIENT_EVENTS, RequestEvent.STOP]


Frame = tuple[str, str | None, int, str]


class OrderRecorder(Recorder):
    """Keeps of every frame what its order is made of; payloads are let go."""

    def __init__(self) -> None:
        super().__init__(keep_bytes=False)
        self._order: list[Frame] = []

    def record(self, record: Record) -> None:
        super().record(record)
        kind = None if record.header is None else record.header.kind.name
        self._order.append((record.sender.name, kind, record.rank, record.phase))

    def forget(self) -> None:
        self._order = []

    def take(self, steps: int) -> list[list[Frame]]:
        """The frames since the last call, by step."""
        taken, self._order = self._order, []
        size, rest = divmod(len(taken), steps)
        assert not rest, "the steps have different numbers of frames"
        return [taken[at : at + size] for at in range(0, len(taken), size)]


@dataclass
class Scene:
    """The requests of one scene and the steps it took."""

    decoding: Request
    long: Request
    moving: Request
    late: Request
    steps: list[Step]


def play(service: Live, way: RequestEvent | None) -> Scene:
    first = len(service.steps)
    decoding = service.submit(DECODING, 4 if way is None else 30, logprobs=2)
    service.turns(1)
    long = service.submit(LONG, 5, logprobs=2)
    moving = service.submit(MOVING, 12, logprobs=2)
    late = service.submit(LATE, 6, logprobs=2)
    service.turns(3)
    if way is not None:
        service.end(decoding, way)
    service.finish()
    service.demand_idle()
    return Scene(decoding, long, moving, late, service.steps[first:])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gate_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def recorder() -> OrderRecorder:
    return OrderRecorder()


@pytest.fixture(
    scope="module",
    params=mostly_exhaustive(LAYOUTS, lambda layout: layout == LAYOUTS[2], unpack=False),
    ids=lambda layout: f"{layout[0]}-{layout[1]}",
)
def service(
    request: pytest.FixtureRequest, folder: Path, recorder: OrderRecorder
) -> Iterator[Live]:
    program, ranks = request.param
    with live(folder, LiveOptions(program=program, ranks=ranks), recorder) as running:
        yield running


def alone_of(service: Live) -> dict[str, Request]:
    asked = {
        "long": (LONG, 5),
        "moving": (MOVING, 12),
        "late": (LATE, 6),
        "decoding": (DECODING, 30),
    }
    return {
        name: service.alone(prompt, count, logprobs=2) for name, (prompt, count) in asked.items()
    }


@pytest.fixture(scope="module")
def alone(service: Live) -> dict[str, Request]:
    return alone_of(service)


def demand_order(service: Live, steps: list[list[Frame]]) -> None:
    """Every step has the same frames, and its collectives are the program's, in rank order."""
    assert all(step == steps[0] for step in steps), "a step has another order of frames"
    partials = [(rank, phase) for _, kind, rank, phase in steps[0] if kind == "PARTIAL"]
    spec = service.setup.spec
    assert partials == [(rank, phase) for phase in spec.phases for rank in range(spec.world_size)]


def demand_as_alone(scene: Scene, alone: dict[str, Request]) -> None:
    for name in ("long", "moving", "late"):
        request: Request = getattr(scene, name)
        assert request.end.outcome is Outcome.LENGTH
        assert demand_same(request.tokens, alone[name].tokens) >= 3
    seen = scene.decoding.tokens
    demand_same(seen, alone["decoding"].tokens[: len(seen)])


def rows_of(plan: StepPlan) -> dict[int, tuple[int, int]]:
    return {row.request_id: (row.start_position, len(row.token_ids)) for row in plan.rows}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "length" if way is None else way.value)
def test_a_mixed_scene(
    service: Live, recorder: OrderRecorder, alone: dict[str, Request], way: RequestEvent | None
) -> None:
    recorder.forget()
    scene = play(service, way)
    demand_as_alone(scene, alone)
    demand_order(service, recorder.take(len(scene.steps)))
    assert any(not step.plan.rows for step in scene.steps), "no step carried a release alone"
    expected = Outcome.LENGTH
    if way is not None:
        expected = Outcome.STOP if way is RequestEvent.STOP else CLIENT_EVENTS[way]
    assert scene.decoding.end.outcome is expected
    plans = [step.plan for step in scene.steps]
    mixed = [
        rows
        for rows in map(rows_of, plans)
        if rows.get(scene.decoding.request_id, (0, 0))[1] == 1
        and rows.get(scene.long.request_id, (0, 0))[0] > 0
        and rows[scene.long.request_id][1] > 1
    ]
    assert mixed, "no chunk with a base position above 0 ran beside a decode"
    assert any(plan.moves for plan in plans), "no slot was closed up"
    entered = [
        plan for plan in plans for a in plan.admissions if a.request_id == scene.late.request_id
    ]
    assert entered[0].releases, "the newcomer did not enter where the decode left"
    assert max(plan.token_count for plan in plans) <= BUDGET


def test_no_decode_waits_for_a_prompt(service: Live) -> None:
    """Measured in steps: a token in every step, while a prompt of seven chunks runs."""
    first = len(service.steps)
    decoding = service.submit(DECODING, 16)
    service.turns(1)
    service.submit(LONG, 1)
    service.finish()
    plans = [step.plan for step in service.steps[first:]]
    during = [plan for plan in plans if len(plan.rows) == 2]
    assert len(during) >= 6
    steps = [token.step for token in decoding.tokens]
    assert steps == list(range(steps[0], steps[0] + 16))


def test_a_heartbeat_has_the_same_order(folder: Path, recorder: OrderRecorder) -> None:
    with live(folder, LiveOptions(ranks=1, heartbeat_s=0.0), recorder) as service:
        service.turns(1)
        recorder.forget()
        service.turns(1)
        service.submit(DECODING, 1)
        service.turns(1)
        demand_order(service, recorder.take(2))
        assert [bool(step.plan.rows) for step in service.steps] == [False, False, True]


def test_another_order_is_noticed(
    folder: Path, recorder: OrderRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that tells the last rank first when a step has no rows."""
    agree = Group._agree

    def backwards(group: Group, plan: JsonObject) -> None:
        links, agreed = group._links, group._agreed
        if not plan["rows"]:
            group._links, group._agreed = links[::-1], agreed[::-1]
        agree(group, plan)
        group._links, group._agreed = links, agreed

    monkeypatch.setattr(Group, "_agree", backwards)
    with live(folder, LiveOptions(), recorder) as service:
        service.alone(DECODING, 1)
        recorder.forget()
        service.alone(DECODING, 1)
        with pytest.raises(AssertionError):
            demand_order(service, recorder.take(2))


def test_the_same_scene_has_the_same_ledger(folder: Path) -> None:
    """Every byte of it: frames, sizes and checksums, in the same order."""
    ledgers = []
    for _ in range(2):
        recorder = Recorder(keep_bytes=True)
        with live(folder, LiveOptions(), recorder) as service:
            # Load reports tell what processes used; the steps do not.
            before = recorder.frames
            play(service, RequestEvent.DISCONNECT)
            ledgers.append([entry.to_line() for entry in recorder.entries()[before:]])
    assert ledgers[0] == ledgers[1]
    assert RECEIVE.encode() in ledgers[0][-1]


@pytest.mark.parametrize(
    "mutation",
    mostly_exhaustive(
        ["chunk_forgets_conv", "move_leaves_conv", "shared_page"],
        lambda mutation: mutation == "shared_page",
    ),
)
def test_a_worker_that_mixes_up_requests_is_noticed(folder: Path, mutation: str) -> None:
    with live(folder, LiveOptions(ranks=1)) as service:
        alone = alone_of(service)
    worker = Worker(mutant_worker.__name__, ("--mutation", mutation))
    options = replace(LiveOptions(ranks=1), worker=worker)
    with live(folder, options) as service, pytest.raises((AssertionError, PeerError)):
        demand_as_alone(play(service, None), alone)
