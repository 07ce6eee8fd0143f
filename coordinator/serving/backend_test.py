"""The backend over fake ranks: what each event does in each phase, and who is told what."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from coordinator.fake_ranks import ListOutbox
from coordinator.process_table import wait_until
from coordinator.request import Outcome, RequestEvent
from coordinator.serving.fake_group import FakeGroup, Start, Watched
from coordinator.serving.restarts import RESTARTS_MAX, RestartPolicy
from coordinator.serving.served import Phase, RankPhase
from coordinator.submission import Submission
from errors import MisuseError, OverloadError, PoisonedError, ProtocolError, TPError
from program.plan import Sampling, StepPlan

CAUSE = ProtocolError("closed", "gone", rank=1, phase="mlp")
EXIT, ON_FAILURE = RestartPolicy.EXIT, RestartPolicy.ON_FAILURE
Make = Callable[..., Watched]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr("coordinator.serving.restarts.FIRST_DELAY_MS", 1)
    made: list[Watched] = []

    def one(
        *starts: Start, started: bool = True, policy: RestartPolicy = EXIT, linger_s: float = 0.0
    ) -> Watched:
        watched = Watched(*starts, policy=policy, linger_s=linger_s)
        if started:
            made.append(watched)
            watched.backend.start()
        return watched

    yield one
    for watched in made:
        watched.end()


def submit(watched: Watched, max_tokens: int = 2) -> ListOutbox:
    outbox = ListOutbox()
    watched.backend.submit(Submission((1, 2), max_tokens, Sampling()), outbox)
    return outbox


def refused(watched: Watched) -> str:
    with pytest.raises((OverloadError, PoisonedError)) as refusal:
        submit(watched)
    assert isinstance(refusal.value, TPError)
    return refusal.value.code


def ended(outbox: ListOutbox) -> bool:
    return wait_until(lambda: bool(outbox.ends))


def test_from_load_to_end(make: Make) -> None:
    watched = make()
    watched.reach(Phase.SERVING)
    outbox = submit(watched)
    assert ended(outbox)
    assert outbox.ends[0].outcome is Outcome.LENGTH
    watched.backend.stop(time.monotonic() + 60)
    watched.reach(Phase.ENDED)
    order = [Phase.LOADING, Phase.SERVING, Phase.STOPPING, Phase.ENDED]
    assert watched.phases == order
    assert refused(watched) == "overload.stopping"
    status = watched.backend.status()
    assert (status.failure, status.restarts, status.epoch) == (None, 0, 1)
    assert {rank.phase for rank in status.ranks} == {RankPhase.GONE}
    assert watched.backend.crash is None


def test_what_it_tells_of_itself(make: Make) -> None:
    backend = make(started=False).backend
    assert (backend.model_id, backend.program) == ("tiny", "qwen35/sharded")
    assert (backend.eos_token_ids, backend.created) == ((3,), 1)
    assert (backend.snapshot, backend.ready_once) == (None, False)
    assert backend.status().phase is Phase.STARTING


def test_before_the_first_load_nobody_is_served(make: Make) -> None:
    assert refused(make(started=False)) == "overload.loading"
    loading = make(Start(waits=True))
    loading.reach(Phase.LOADING)
    assert refused(loading) == "overload.loading"
    # An end of a request that can't exist does not pile up.
    loading.backend.end(0, RequestEvent.CANCEL)
    assert loading.backend._inbox.drain() == []


def test_a_stop_while_loading_is_no_failure(make: Make) -> None:
    watched = make(Start(waits=True))
    watched.reach(Phase.LOADING)
    assert watched.backend.stop(time.monotonic()) is False
    assert refused(watched) == "overload.stopping"
    watched.backend.kill()
    watched.reach(Phase.ENDED)
    assert watched.backend.status().failure is None


@pytest.mark.parametrize("idle", [False, True])
def test_a_failure(make: Make, idle: bool) -> None:
    """Every live request has its one error; later ones are refused with the first failure."""
    watched = make(linger_s=60.0)
    watched.reach(Phase.SERVING)
    (group,) = watched.groups.opened
    outboxes: list[ListOutbox] = []
    if idle:
        group.fail_while_idle(CAUSE)
    else:
        group.step_failure = CAUSE
        outboxes = [submit(watched, 20) for _ in range(2)]
    watched.reach(Phase.FAILED)
    for outbox in outboxes:
        assert ended(outbox)
        (end,) = outbox.ends
        assert (end.outcome, end.error) == (Outcome.FAILED, CAUSE)
    assert refused(watched) == "group.poisoned"
    failure = watched.backend.status().failure
    assert failure is not None
    assert (failure.cause, failure.step) == (CAUSE, None if idle else 0)
    # It lingers, and a stop ends that.
    assert not watched.backend.ended
    assert watched.backend.stop(time.monotonic()) is False
    watched.reach(Phase.ENDED)
    assert watched.backend.status().failure is failure
    assert refused(watched) == "group.poisoned"


def test_who_comes_while_a_failure_is_dealt_with(make: Make) -> None:
    """The phase has not moved yet, so the request is taken, and told like all others."""
    watched = make(linger_s=60.0)
    watched.reach(Phase.SERVING)
    (group,) = watched.groups.opened
    late: list[ListOutbox] = []
    group.during_retire = lambda: late.append(submit(watched))
    group.fail_while_idle(CAUSE)
    watched.reach(Phase.FAILED)
    assert ended(late[0])
    error = late[0].ends[0].error
    assert isinstance(error, PoisonedError)
    assert error.cause is CAUSE


def test_a_failure_is_told_to_health_no_later_than_to_clients(make: Make) -> None:
    watched = make(linger_s=60.0)
    watched.reach(Phase.SERVING)
    seen: list[bool] = []

    class Looking(ListOutbox):
        def put(self, update: object) -> None:
            seen.append(watched.backend.status().failure is not None)

    watched.groups.opened[0].step_failure = CAUSE
    watched.backend.submit(Submission((1,), 1, Sampling()), Looking())
    watched.reach(Phase.FAILED)
    assert seen == [True]


def test_a_restart_serves_under_an_epoch_of_its_own(make: Make) -> None:
    watched = make(policy=ON_FAILURE)
    watched.reach(Phase.SERVING)
    before = submit(watched)
    assert ended(before)
    steps = len(watched.groups.opened[0].plans)
    watched.groups.opened[0].fail_while_idle(CAUSE)
    watched.reach(Phase.SERVING, times=2)
    after = submit(watched)
    assert ended(after)
    assert after.ends[0].outcome is Outcome.LENGTH
    assert after.ends[0].request_id > before.ends[0].request_id
    first, second = watched.groups.manifests
    assert second.epoch > first.epoch + steps
    status = watched.backend.status()
    assert (status.epoch, status.restarts, status.failure) == (second.epoch, 1, None)
    order = [Phase.LOADING, Phase.SERVING, Phase.FAILED, Phase.RESTARTING] * 2
    assert watched.phases[:6] == order[:6]


def test_while_it_restarts_the_last_failure_is_the_reason(make: Make) -> None:
    watched = make(Start(), Start(waits=True), policy=ON_FAILURE)
    watched.reach(Phase.SERVING)
    watched.groups.opened[0].fail_while_idle(CAUSE)
    watched.reach(Phase.LOADING, times=2)
    failure = watched.backend.status().failure
    assert failure is not None
    assert failure.cause is CAUSE
    assert refused(watched) == "overload.loading"
    # A stop now is no failure of the load, but the one that was is still true.
    watched.backend.stop(time.monotonic())
    watched.backend.kill()
    watched.reach(Phase.ENDED)
    assert watched.backend.status().failure is failure


def test_a_fault_that_repeats_ends_the_service(make: Make) -> None:
    watched = make(*[Start(refuses=CAUSE)] * (RESTARTS_MAX + 1), policy=ON_FAILURE)
    watched.reach(Phase.ENDED)
    assert len(watched.groups.manifests) == RESTARTS_MAX + 1
    epochs = [manifest.epoch for manifest in watched.groups.manifests]
    assert epochs == sorted(set(epochs))
    failure = watched.backend.status().failure
    assert failure is not None
    assert failure.cause is CAUSE


def test_a_load_that_fails_ends_it_without_the_policy(make: Make) -> None:
    watched = make(Start(refuses=CAUSE))
    watched.reach(Phase.ENDED)
    assert Phase.FAILED in watched.phases
    assert len(watched.groups.manifests) == 1


@pytest.mark.parametrize(
    "crash", [MisuseError("planted"), TPError("process.start", "no such program")]
)
def test_what_is_no_failure_of_a_rank_ends_it(make: Make, crash: Exception) -> None:
    """Whatever the policy says: a restart would hide it."""
    watched = make(Start(refuses=crash), policy=ON_FAILURE)
    watched.reach(Phase.ENDED)
    assert watched.backend.crash is crash
    assert refused(watched) == "overload.stopping"


def test_a_mistake_of_ours_in_a_step(make: Make) -> None:
    watched = make(policy=ON_FAILURE)
    watched.reach(Phase.SERVING)

    def mistake(plan: StepPlan) -> None:
        raise MisuseError("planted")

    watched.groups.opened[0].during = mistake
    submit(watched)
    watched.reach(Phase.ENDED)
    assert isinstance(watched.backend.crash, MisuseError)
    assert watched.groups.open_now == 0


def hanging(make: Make) -> tuple[Watched, FakeGroup, ListOutbox]:
    watched = make(policy=ON_FAILURE)
    watched.reach(Phase.SERVING)
    (group,) = watched.groups.opened
    group.during = group.hang
    outbox = submit(watched)
    assert wait_until(lambda: bool(group.plans))
    return watched, group, outbox


def test_a_step_that_hangs_in_the_drain_is_killed(make: Make) -> None:
    """That is a failure, and no reason to start again."""
    watched, group, outbox = hanging(make)
    assert watched.backend.stop(time.monotonic()) is True
    assert refused(watched) == "overload.stopping"
    watched.backend.kill()
    watched.reach(Phase.ENDED)
    assert outbox.ends[0].outcome is Outcome.FAILED
    failure = watched.backend.status().failure
    assert failure is not None
    assert failure.step == 0
    assert len(watched.groups.manifests) == 1
    assert group.killed.is_set()


def test_what_does_not_finish_in_the_drain_is_dropped(make: Make) -> None:
    watched = make()
    watched.reach(Phase.SERVING)
    (group,) = watched.groups.opened
    group.during = lambda plan: time.sleep(0.02)
    outbox = submit(watched, 40)
    assert wait_until(lambda: bool(outbox.updates))
    watched.backend.stop(time.monotonic())
    watched.reach(Phase.ENDED)
    assert outbox.ends[0].outcome is Outcome.DROPPED
    assert watched.backend.status().failure is None


def test_a_client_that_leaves(make: Make) -> None:
    watched = make()
    watched.reach(Phase.SERVING)
    (group,) = watched.groups.opened
    group.during = lambda plan: time.sleep(0.02)
    outbox = submit(watched, 40)
    assert wait_until(lambda: bool(outbox.updates))
    watched.backend.end(outbox.updates[0].request_id, RequestEvent.DISCONNECT)
    assert ended(outbox)
    assert outbox.ends[0].outcome is Outcome.DISCONNECTED
