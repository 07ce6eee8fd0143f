"""The fake tells the truth about the engine that it runs."""

from __future__ import annotations

import pytest

from coordinator.fake_ranks import ListOutbox
from coordinator.request import Outcome, RequestEvent, Token
from coordinator.serving.api_client import until
from coordinator.serving.fake_served import EOS, FakeServed, counts, writes
from coordinator.serving.served import Phase
from coordinator.submission import Submission
from errors import OverloadError, PoisonedError
from program.plan import Sampling


def submission(max_tokens: int = 9, logprobs: int | None = None) -> Submission:
    return Submission((1, 2), max_tokens, Sampling(), frozenset({EOS}), logprobs)


def ended(served: FakeServed, wanted: Submission) -> ListOutbox:
    outbox = ListOutbox()
    served.submit(wanted, outbox)
    until(lambda: bool(outbox.ends))
    return outbox


def test_scripts() -> None:
    with FakeServed(writes([7, 8, 9])) as served:
        outbox = ended(served, submission())
        assert outbox.token_ids == [7, 8, 9, EOS]
        assert outbox.ends[0].outcome is Outcome.STOP
        until(lambda: served.idle)
    with FakeServed(counts) as served:
        assert len(ended(served, submission()).token_ids) == 9
        updates = ended(served, submission(2, 3)).updates
        assert [len(one.top) for one in updates if isinstance(one, Token)] == [3, 3]


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.LOADING, Phase.RESTARTING])
def test_loading(phase: Phase) -> None:
    with FakeServed(phase=phase) as served:
        with pytest.raises(OverloadError) as refusal:
            served.submit(submission(), ListOutbox())
        assert refusal.value.code == "overload.loading"
        assert served.status().phase is phase


def test_poisoned_at_idle_and_in_a_step() -> None:
    for running in (False, True):
        with FakeServed(step_s=0.002) as served:
            outbox = ListOutbox()
            if running:
                served.submit(submission(900), outbox)
                until(lambda: len(served.ranks.plans) > 2)
            served.poison()
            until(lambda: served.status().failure is not None)
            assert served.status().phase is Phase.FAILED
            assert [end.outcome for end in outbox.ends] == [Outcome.FAILED] * running
            with pytest.raises(PoisonedError):
                served.submit(submission(), ListOutbox())


def test_held_steps() -> None:
    with FakeServed() as served:
        served.hold()
        outbox = ListOutbox()
        request_id = served.submit(submission(), outbox)
        served.end(request_id, RequestEvent.CANCEL)
        assert outbox.updates == []
        served.release()
        until(lambda: bool(outbox.ends))
        assert outbox.ends[0].outcome is Outcome.CANCELLED
