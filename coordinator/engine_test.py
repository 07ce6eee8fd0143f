"""The serving loop over fake ranks: order of events, one end per request, the latch, the stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from coordinator.engine import Engine
from coordinator.engine_inbox import Inbox
from coordinator.fake_ranks import LIMITS, FakeClock, FakeRanks, ListOutbox, sampled
from coordinator.request import Finished, Outcome, RequestEvent, Token
from coordinator.scheduler import Scheduler
from coordinator.submission import Submission
from errors import ContractError, DeadlineError, MisuseError, ProtocolError
from program.plan import Sampling, StepPlan
from program.step_report import StepReport

HEARTBEAT_S = 60.0
GONE = ProtocolError("closed", "the stream ended", rank=1, phase="plan")


class Served:
    """An engine over fake ranks, and what its clients see."""

    def __init__(self, waiting_max: int = 9) -> None:
        self.clock = FakeClock()
        self.ranks = FakeRanks(self.clock)
        self.woken = 0
        self.inbox = Inbox(waiting_max, self._wake)
        scheduler = Scheduler(LIMITS, step_tokens=8, waiting_max=waiting_max)
        self.engine = Engine(
            self.ranks, scheduler, self.inbox, heartbeat_s=HEARTBEAT_S, clock=self.clock
        )

    def _wake(self) -> None:
        self.woken += 1

    def submit(self, prompt: int = 3, max_tokens: int = 2) -> tuple[int, ListOutbox]:
        outbox = ListOutbox()
        submission = Submission((1,) * prompt, max_tokens, Sampling())
        return self.inbox.submit(submission, outbox), outbox

    def turns(self, count: int = 100) -> None:
        for _ in range(count):
            if not self.engine.turn():
                return


@pytest.fixture
def served() -> Served:
    return Served()


def test_tokens_then_exactly_one_end(served: Served) -> None:
    request_id, outbox = served.submit(prompt=3, max_tokens=2)
    served.turns()
    assert [type(update) for update in outbox.updates] == [Token, Token, Finished]
    assert outbox.token_ids == [sampled(request_id, 3), sampled(request_id, 4)]
    assert outbox.ends[0].outcome is Outcome.LENGTH
    assert served.engine.snapshot.scheduler.table == served.ranks.table
    assert served.ranks.table.residents == ()


def test_updates_go_to_their_own_outbox(served: Served) -> None:
    clients = [served.submit(prompt=1 + index, max_tokens=3) for index in range(5)]
    served.turns()
    for request_id, outbox in clients:
        assert {update.request_id for update in outbox.updates} == {request_id}
        assert len(outbox.token_ids) == 3
        assert len(outbox.ends) == 1


def test_a_client_learns_what_the_snapshot_already_says(served: Served) -> None:
    seen: list[tuple[int, ...]] = []

    class Looking(ListOutbox):
        def put(self, update: object) -> None:
            seen.append(tuple(one for one, _ in served.engine.snapshot.scheduler.states))

    served.inbox.submit(Submission((1,), 1, Sampling()), Looking())
    served.turns()
    assert seen == [(0,), ()]


def test_outboxes_are_flushed_after_the_last_update_of_a_step(served: Served) -> None:
    seen: list[str] = []

    class Looking(ListOutbox):
        def put(self, update: object) -> None:
            seen.append("put")

        def flush(self) -> None:
            seen.append("flush")

    for _ in range(2):
        served.inbox.submit(Submission((1,), 1, Sampling()), Looking())
    served.turns()
    step = ["put", "put", "flush", "flush"]
    assert seen == step + step


def test_clients_are_woken_while_the_next_step_runs(served: Served) -> None:
    seen: list[str] = []

    class Looking(ListOutbox):
        def put(self, update: object) -> None:
            seen.append("put")

        def flush(self) -> None:
            seen.append(f"flush in step {len(served.ranks.plans)}")

    served.inbox.submit(Submission((1,), 2, Sampling()), Looking())
    served.engine.turn()
    assert seen == ["put"]
    served.ranks.step_failure = GONE
    served.turns()
    assert seen == ["put", "flush in step 2", "put", "flush in step 2"]


def test_an_end_that_comes_during_a_step_silences_it(served: Served) -> None:
    request_id, outbox = served.submit(max_tokens=9)
    served.engine.turn()
    assert len(outbox.token_ids) == 1

    def leave(plan: StepPlan) -> None:
        served.inbox.end(request_id, RequestEvent.DISCONNECT)

    served.ranks.during = leave
    served.turns()
    assert len(outbox.token_ids) == 1
    assert [end.outcome for end in outbox.ends] == [Outcome.DISCONNECTED]
    assert len(served.ranks.plans) == 3


@pytest.mark.parametrize("event", [RequestEvent.CANCEL, RequestEvent.DISCONNECT, RequestEvent.DROP])
def test_an_end_of_nothing_changes_nothing(served: Served, event: RequestEvent) -> None:
    request_id, outbox = served.submit(max_tokens=1)
    for target in (-1, 77):
        served.inbox.end(target, event)
    served.turns()
    served.inbox.end(request_id, event)
    served.turns()
    assert len(outbox.ends) == 1
    assert outbox.ends[0].outcome is Outcome.LENGTH


def test_a_stop_string_is_a_success(served: Served) -> None:
    request_id, outbox = served.submit(max_tokens=9)
    served.engine.turn()
    served.inbox.end(request_id, RequestEvent.STOP)
    served.turns()
    assert outbox.ends[0].outcome is Outcome.STOP


def test_only_clients_events_enter() -> None:
    with pytest.raises(MisuseError):
        Served().inbox.end(0, RequestEvent.POISON)


def test_a_request_that_comes_during_a_step_is_in_the_next(served: Served) -> None:
    late: list[ListOutbox] = []

    def arrive(plan: StepPlan) -> None:
        if plan.step == 0:
            late.append(served.submit(max_tokens=1)[1])

    served.ranks.during = arrive
    served.submit(max_tokens=3)
    served.turns()
    (outbox,) = late
    assert [len(plan.admissions) for plan in served.ranks.plans[:2]] == [1, 1]
    assert len(outbox.ends) == 1


@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_failed_step_ends_every_live_request_once(served: Served, step: int) -> None:
    clients = [served.submit(max_tokens=20)[1] for _ in range(6)]
    served.turns(step)
    served.ranks.step_failure = GONE
    served.turns()
    assert served.engine.failure is not None
    assert (served.engine.failure.cause, served.engine.failure.step) == (GONE, step)
    assert served.ranks.retired == [GONE]
    for outbox in clients:
        assert [end.outcome for end in outbox.ends] == [Outcome.FAILED]
        assert outbox.ends[0].error is GONE
        assert outbox.updates[-1] is outbox.ends[0]


def test_after_a_failure_requests_end_at_once_and_no_rank_is_asked(served: Served) -> None:
    served.submit()
    served.ranks.step_failure = GONE
    served.turns()
    steps = len(served.ranks.plans)
    served.ranks.step_failure = DeadlineError("receive", "another", rank=0, phase="result")
    _, late = served.submit()
    served.turns()
    assert [end.outcome for end in late.ends] == [Outcome.FAILED]
    assert late.ends[0].error is not None
    assert late.ends[0].error.code == "group.poisoned"
    assert len(served.ranks.plans) == steps
    assert served.engine.snapshot.failure is not None
    assert served.engine.snapshot.failure.cause is GONE
    served.clock.now += 10 * HEARTBEAT_S
    served.turns()
    assert len(served.ranks.plans) == steps


def test_a_failure_while_idle(served: Served) -> None:
    served.ranks.wait_failure = GONE
    served.engine.wait()
    assert served.engine.failure is not None
    assert served.engine.failure.step is None
    served.ranks.wait_failure = None
    assert served.submit()[1].ends == []


def test_a_result_that_the_plan_did_not_ask_for_stops_the_group(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, outbox = served.submit()
    step = served.ranks.step

    def other_artifacts(plan: StepPlan, meanwhile: Callable[[], None]) -> StepReport:
        return replace(step(plan, meanwhile), artifacts=())

    monkeypatch.setattr(served.ranks, "step", other_artifacts)
    served.turns()
    assert isinstance(served.ranks.retired[0], ContractError)
    assert [end.outcome for end in outbox.ends] == [Outcome.FAILED]


def test_an_idle_group_beats(served: Served) -> None:
    served.turns()
    assert served.ranks.plans == []
    served.engine.wait()
    assert served.ranks.waits == [HEARTBEAT_S]
    assert served.engine.turn()
    assert served.ranks.plans == [StepPlan(step=0)]
    assert not served.engine.turn()
    served.engine.wait()
    assert served.ranks.waits == [HEARTBEAT_S, HEARTBEAT_S]
    _, outbox = served.submit()
    served.turns()
    assert len(outbox.ends) == 1


def test_a_stop_lets_requests_finish(served: Served) -> None:
    _, outbox = served.submit(max_tokens=5)
    served.engine.turn()
    served.inbox.stop(served.clock.now + 10)
    served.engine.run()
    assert served.engine.done
    assert [end.outcome for end in outbox.ends] == [Outcome.LENGTH]
    assert served.ranks.waits == []


def test_a_stop_is_bounded(served: Served) -> None:
    clients = [served.submit(max_tokens=40)[1] for _ in range(6)]
    served.engine.turn()

    def slow(plan: StepPlan) -> None:
        served.clock.now += 4

    served.ranks.during = slow
    served.inbox.stop(served.clock.now + 10)
    served.engine.run()
    assert [[end.outcome for end in outbox.ends] for outbox in clients] == [[Outcome.DROPPED]] * 6
    # Three steps within the time, and one that carries the releases.
    assert len(served.ranks.plans) <= 1 + 3 + 1
    assert served.ranks.table.residents == ()


def test_the_earliest_stop_counts(served: Served) -> None:
    served.submit(max_tokens=40)
    served.engine.turn()
    served.inbox.stop(served.clock.now + 1000)
    served.inbox.stop(served.clock.now)
    served.inbox.stop(served.clock.now + 2000)
    served.engine.run()
    assert len(served.ranks.plans) == 2


def test_an_idle_stop_is_immediate(served: Served) -> None:
    served.inbox.stop(served.clock.now + 1000)
    served.engine.run()
    assert served.ranks.plans == []
    assert served.ranks.waits == []
    assert served.engine.snapshot.stopping


def test_a_stop_of_a_failed_engine(served: Served) -> None:
    served.submit()
    served.ranks.step_failure = GONE
    served.turns()
    served.inbox.stop(served.clock.now + 1000)
    served.engine.run()
    assert served.ranks.waits == []


def test_the_snapshot_shows_the_step_that_runs(served: Served) -> None:
    seen = []

    def look(plan: StepPlan) -> None:
        seen.append(served.engine.snapshot.scheduler.in_flight)

    served.ranks.during = look
    served.submit(max_tokens=1)
    served.turns()
    assert seen == [0, 1]
    assert served.engine.snapshot.scheduler.in_flight is None
    assert served.engine.snapshot.steps == 2


def test_more_than_may_wait_is_refused_in_order() -> None:
    served = Served(waiting_max=2)
    clients = [served.submit(max_tokens=6)[1] for _ in range(2)]
    served.engine.turn()
    clients += [served.submit(max_tokens=6)[1] for _ in range(2)]
    served.engine.turn()
    clients += [served.submit(max_tokens=6)[1] for _ in range(2)]
    served.engine.turn()
    rejected = [outbox.ends[0].outcome for outbox in clients if outbox.ends]
    assert rejected == [Outcome.REJECTED]
    served.turns()
    ends = [[end.outcome for end in outbox.ends] for outbox in clients]
    assert ends.count([Outcome.REJECTED]) == 1
    assert ends.count([Outcome.LENGTH]) == 5


def test_clients_of_many_threads() -> None:
    """Every request of every thread ends exactly once, and ids rise with arrival."""
    served = Served(waiting_max=1000)
    outboxes: list[ListOutbox] = []

    def client(seed: int) -> None:
        for index in range(20):
            request_id, outbox = served.submit(prompt=1 + (seed + index) % 5, max_tokens=3)
            outboxes.append(outbox)
            if index % 3 == 0:
                served.inbox.end(request_id, RequestEvent.CANCEL)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        served.engine.turn()
    served.turns(1000)
    assert len(outboxes) == 80
    assert all(len(outbox.ends) == 1 for outbox in outboxes)
