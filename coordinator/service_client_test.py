"""One client of the control socket: its lines, its requests, and what becomes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.engine import Engine
from coordinator.engine_inbox import Inbox
from coordinator.fake_ranks import LIMITS, FakeClock, FakeRanks
from coordinator.scheduler import Scheduler
from coordinator.service_client import UNREAD_BYTES_MAX, ServiceClient
from coordinator.service_protocol import LINE_BYTES_MAX
from errors import ProtocolError


class Service:
    """An engine over fake ranks, and clients."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ranks = FakeRanks(self.clock)
        self.inbox = Inbox(8, lambda: None)
        scheduler = Scheduler(LIMITS, step_tokens=8, waiting_max=8)
        self.engine = Engine(self.ranks, scheduler, self.inbox, heartbeat_s=60.0, clock=self.clock)
        self.announced = 0

    def client(self) -> ServiceClient:
        return ServiceClient(self.inbox, LIMITS, lambda: self.engine.snapshot, self._announce)

    def _announce(self) -> None:
        self.announced += 1

    def run(self) -> None:
        while self.engine.turn():
            pass


def send(client: ServiceClient, **command: object) -> None:
    client.receive_data(json.dumps(command).encode("ascii") + b"\n")


def submit(client: ServiceClient, max_tokens: int = 2, **parameters: object) -> int:
    given = {"prompt_token_ids": [1, 2], "max_tokens": max_tokens, **parameters}
    send(client, op="submit", tag="t", parameters=given)
    event = said(client)[-1]
    assert event["event"] == "accepted"
    return int(event["request_id"])


def said(client: ServiceClient) -> list[Any]:
    """The events so far; they are taken."""
    client.take_updates()
    lines = bytes(client.output).splitlines()
    client.output.clear()
    return [json.loads(line) for line in lines]


@pytest.fixture
def service() -> Service:
    return Service()


def test_a_request_from_its_submission_to_its_end(service: Service) -> None:
    client = service.client()
    request_id = submit(client)
    assert client.live == {request_id}
    service.run()
    assert service.announced == 3
    events = said(client)
    assert [event["event"] for event in events] == ["token", "token", "finished"]
    assert {event["request_id"] for event in events} == {request_id}
    assert client.live == set()


def test_lines_may_be_cut_anywhere(service: Service) -> None:
    client = service.client()
    line = b'{"op":"state"}\n{"op":"state"}\n'
    for byte in line:
        client.receive_data(bytes([byte]))
    assert [event["event"] for event in said(client)] == ["state", "state"]


def test_mistakes_are_answered_and_nothing_reaches_the_engine(service: Service) -> None:
    client = service.client()
    client.receive_data(b"junk\n")
    send(client, op="submit", tag="x", parameters={"prompt_token_ids": [1], "max_tokens": 0})
    send(client, op="submit", tag="y", parameters={"fly": 1})
    reuse = {"prompt_token_ids": [1], "max_tokens": 1, "prefix_reuse": True}
    send(client, op="submit", tag="z", parameters=reuse)
    events = said(client)
    assert [event["event"] for event in events] == ["refused"] * 4
    assert [event["tag"] for event in events] == [None, "x", "y", "z"]
    codes = [event["error"]["code"] for event in events]
    assert codes == ["request.syntax", "request.range", "request.unknown", "request.unsupported"]
    assert service.inbox.drain() == []
    assert not client.gone


def test_cancel_stop_and_drop(service: Service) -> None:
    client = service.client()
    ids = [submit(client, max_tokens=20) for _ in range(3)]
    service.engine.turn()
    said(client)
    for op, request_id in zip(("cancel", "stop", "drop"), ids, strict=True):
        send(client, op=op, request_id=request_id)
    taken = said(client)
    assert [event["live"] for event in taken] == [True, True, True]
    service.run()
    ends = [event for event in said(client) if event["event"] == "finished"]
    assert {event["request_id"]: event["outcome"] for event in ends} == {
        ids[0]: "cancelled",
        ids[1]: "stop",
        ids[2]: "dropped",
    }
    send(client, op="cancel", request_id=ids[0])
    assert [event["live"] for event in said(client)] == [False]


def test_no_token_follows_the_answer_to_a_cancel(service: Service) -> None:
    """Also not one that the engine had said before it knew of the cancel."""
    client = service.client()
    request_id = submit(client, max_tokens=20)
    service.engine.turn()
    service.engine.turn()
    send(client, op="cancel", request_id=request_id)
    service.run()
    assert [event["event"] for event in said(client)] == ["taken", "finished"]


def test_a_stop_string_needs_a_token(service: Service) -> None:
    client = service.client()
    request_id = submit(client, max_tokens=20)
    send(client, op="stop", request_id=request_id)
    (refused,) = said(client)
    assert refused["error"]["param"] == "request_id"
    service.run()
    assert said(client)[-1]["outcome"] == "length"


def test_other_clients_requests_are_none_of_ones_own(service: Service) -> None:
    """Only an operator's drop reaches them."""
    owner, other = service.client(), service.client()
    request_id = submit(owner, max_tokens=20)
    service.engine.turn()
    for op in ("cancel", "stop"):
        send(other, op=op, request_id=request_id)
    assert [event["live"] for event in said(other)] == [False, False]
    service.engine.turn()
    assert [event["event"] for event in said(owner)] == ["token", "token"]
    send(other, op="drop", request_id=request_id)
    service.run()
    assert said(owner)[-1]["outcome"] == "dropped"
    assert [event["event"] for event in said(other)] == ["taken"]


def test_leaving_ends_all_of_ones_requests(service: Service) -> None:
    client = service.client()
    for _ in range(5):
        submit(client, max_tokens=20)
    service.engine.turn()
    client.leave()
    client.leave()
    service.run()
    assert service.engine.snapshot.scheduler.states == ()
    assert service.ranks.table.residents == ()
    client.take_updates()
    assert not client.output


def test_a_line_without_end_is_cut_off(service: Service) -> None:
    client = service.client()
    submit(client, max_tokens=20)
    client.receive_data(b"x" * (LINE_BYTES_MAX + 1))
    assert client.gone
    assert b"request.syntax" in client.output
    service.run()
    assert service.engine.snapshot.scheduler.states == ()


def test_what_is_not_read_is_bounded(service: Service) -> None:
    client = service.client()
    submit(client, max_tokens=20)
    line = b'{"op":"state"}\n'
    for _ in range(UNREAD_BYTES_MAX // 200):
        client.receive_data(line)
        if client.gone:
            break
    assert client.gone
    assert len(client.output) < 2 * UNREAD_BYTES_MAX
    service.run()
    assert service.engine.snapshot.scheduler.states == ()


def test_a_full_inbox_and_a_stopping_service(service: Service) -> None:
    client = service.client()
    for _ in range(8):
        submit(client)
    given = {"prompt_token_ids": [1], "max_tokens": 1}
    send(client, op="submit", tag="ninth", parameters=given)
    assert said(client)[-1]["error"]["code"] == "overload.queue"
    service.engine.turn()
    service.inbox.stop(service.clock.now + 9)
    send(client, op="submit", tag="late", parameters=given)
    (refused,) = [event for event in said(client) if event["event"] == "refused"]
    assert refused["error"]["code"] == "overload.stopping"


def test_the_state(service: Service) -> None:
    client = service.client()
    request_id = submit(client, max_tokens=20)
    service.engine.turn()
    said(client)
    send(client, op="state")
    (event,) = said(client)
    state = event["state"]
    assert state["requests"] == [{"request_id": request_id, "state": "running"}]
    assert state["slots"][0]["request_id"] == request_id
    assert state["slots"][1:] == [None, None]
    assert state["pages_free"] == LIMITS.pages - 6
    assert state["failure"] is None
    service.ranks.step_failure = ProtocolError("closed", "gone", rank=1, phase="plan")
    service.run()
    end = said(client)[-1]
    assert (end["outcome"], end["error"]["rank"]) == ("failed", 1)
    send(client, op="state")
    failure = said(client)[0]["state"]["failure"]
    assert (failure["step"], failure["cause"]["code"]) == (1, "protocol.closed")
