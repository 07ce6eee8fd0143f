"""The inbox: order, ids, bounds, and what a stop refuses."""

from __future__ import annotations

import pytest

from coordinator.engine_inbox import End, Inbox, Stop, Submit
from coordinator.fake_ranks import ListOutbox
from coordinator.request import RequestEvent
from coordinator.submission import Submission
from errors import OverloadError
from program.plan import Sampling

REQUEST = Submission((1,), 1, Sampling())


def test_events_come_out_in_order_and_once() -> None:
    woken = []
    inbox, outbox = Inbox(4, lambda: woken.append(1)), ListOutbox()
    assert [inbox.submit(REQUEST, outbox) for _ in range(2)] == [0, 1]
    inbox.end(1, RequestEvent.CANCEL)
    inbox.stop(7.0)
    events = inbox.drain()
    assert events == [
        Submit(0, REQUEST, outbox),
        Submit(1, REQUEST, outbox),
        End(1, RequestEvent.CANCEL),
        Stop(7.0),
    ]
    assert inbox.drain() == []
    assert len(woken) == 4


def test_what_the_engine_has_not_taken_is_bounded() -> None:
    inbox = Inbox(2, lambda: None)
    for _ in range(2):
        inbox.submit(REQUEST, ListOutbox())
    with pytest.raises(OverloadError) as refused:
        inbox.submit(REQUEST, ListOutbox())
    assert refused.value.code == "overload.queue"
    inbox.drain()
    assert inbox.submit(REQUEST, ListOutbox()) == 2


def test_no_request_enters_after_a_stop() -> None:
    inbox = Inbox(2, lambda: None)
    inbox.stop(1.0)
    with pytest.raises(OverloadError) as refused:
        inbox.submit(REQUEST, ListOutbox())
    assert refused.value.code == "overload.stopping"
    inbox.end(0, RequestEvent.CANCEL)
    assert inbox.drain() == [Stop(1.0), End(0, RequestEvent.CANCEL)]
