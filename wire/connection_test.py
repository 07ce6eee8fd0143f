"""Conversations from the vectors, however they are cut, and what a connection adds to its parts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from errors import ContractError, DeadlineError, MisuseError, PeerError, ProtocolError
from testdata.vectors.reading import load
from wire.connection import Connection
from wire.frame import Frame, Kind, Side
from wire.metadata import Fence, Hello, Result, Tensor
from wire.recorder import Recorder
from wire.session import Session

FILE = load("ledger.json")
PIECES = [1, 7, 36, 100_000]


def coordinator(recorder: Recorder | None) -> Connection:
    session = Session(tuple(FILE["phases"]), FILE["folded"])
    session.adopt_epoch(FILE["first_epoch"])
    return Connection(Side.COORDINATOR, session, FILE["rank"], recorder)


def play(connection: Connection, events: list[dict[str, Any]], piece: int) -> PeerError | None:
    """Run the events of a vector; the failure that stops them, or None."""
    for event in events:
        raw, metadata = bytes.fromhex(event["bytes"]), event["metadata"].encode("ascii")
        try:
            if event["do"] == "send":
                payload = bytes.fromhex(event["payload"])
                buffers = connection.send(Kind[event["kind"]], metadata, payload)
                assert b"".join(buffers) == raw
                if event["then"] == "deadline":
                    raise connection.fail(DeadlineError("send", "not written in time"))
            else:
                receive(connection, metadata, raw, piece, event["then"])
        except PeerError as error:
            return error
    return None


def receive(
    connection: Connection, expected: bytes, raw: bytes, piece: int, then: str | None
) -> Frame:
    for at in range(0, len(raw), piece):
        frame = connection.next_frame(expected)
        if frame is not None:
            return frame
        connection.receive_data(raw[at : at + piece])
    frame = connection.next_frame(expected)
    if frame is not None:
        return frame
    if then == "deadline":
        raise connection.fail(DeadlineError("receive", "nothing came in time"))
    connection.receive_eof()
    frame = connection.next_frame(expected)
    if frame is None:
        raise AssertionError("the coordinator saw a clean end")
    return frame


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda vector: str(vector["id"]))
def test_vector(vector: dict[str, Any], piece: int) -> None:
    recorder = Recorder()
    failure = play(coordinator(recorder), vector["events"], piece)
    assert (failure and failure.code) == vector["code"]
    assert recorder.ledger().decode("ascii").splitlines() == vector["ledger"]
    assert recorder.tape().hex() == vector["tape"]
    assert recorder.totals()._asdict() == vector["totals"]
    if failure is not None:
        last = recorder.entries()[-1]
        assert (failure.rank, failure.phase) == (FILE["rank"], last.phase)
        assert last.error == failure.code


@pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda vector: str(vector["id"]))
def test_without_a_recorder_the_outcome_is_the_same(vector: dict[str, Any]) -> None:
    failure = play(coordinator(None), vector["events"], 50)
    assert (failure and failure.code) == vector["code"]


@pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda vector: str(vector["id"]))
def test_without_kept_bytes_only_the_digests_are_missing(vector: dict[str, Any]) -> None:
    kept, bare = Recorder(), Recorder(keep_bytes=False)
    play(coordinator(kept), vector["events"], 50)
    play(coordinator(bare), vector["events"], 50)
    assert bare.totals() == kept.totals()
    for entry, other in zip(bare.entries(), kept.entries(), strict=True):
        assert entry.payload_sha256 is None
        assert entry.to_line() == _without_digest(other.to_line())


def _without_digest(line: bytes) -> bytes:
    head, key, rest = line.partition(b'"payload_sha256":')
    return head + key + b"null" + rest[rest.index(b",") :]


CLEAN = FILE["vectors"][0]["events"]
PARTIAL_AT = 5


def at_partial(recorder: Recorder | None = None) -> Connection:
    connection = coordinator(recorder)
    assert play(connection, CLEAN[:PARTIAL_AT], 100) is None
    return connection


def event_bytes(at: int) -> tuple[bytes, bytes]:
    return bytes.fromhex(CLEAN[at]["bytes"]), CLEAN[at]["metadata"].encode("ascii")


def test_bytes_that_arrived_change_nothing_before_they_are_consumed() -> None:
    recorder = Recorder()
    connection = at_partial(recorder)
    raw, expected = event_bytes(PARTIAL_AT)
    connection.receive_data(raw)
    assert connection.session.state.name == "OPEN"
    assert recorder.frames == PARTIAL_AT
    assert connection.next_frame(expected) is not None
    assert connection.session.state.name == "PARTIAL_SENT"
    assert recorder.frames == PARTIAL_AT + 1


def test_the_first_failure_stays() -> None:
    recorder = Recorder()
    connection = at_partial(recorder)
    connection.receive_data(b"nonsense")
    with pytest.raises(ProtocolError) as first:
        connection.next_frame()
    recorded = recorder.ledger()
    with pytest.raises(ProtocolError) as second:
        connection.next_frame()
    assert second.value is first.value
    assert connection.fail(DeadlineError("receive", "late")) is first.value
    assert recorder.ledger() == recorded
    with pytest.raises(MisuseError):
        connection.send(Kind.REDUCTION, b"{}")


def test_a_frame_that_the_caller_condemns_is_the_failing_entry() -> None:
    recorder = Recorder()
    connection = at_partial(recorder)
    raw, _ = event_bytes(PARTIAL_AT)
    connection.receive_data(raw)
    assert connection.next_frame() is not None
    failure = connection.fail(ContractError("ranks_disagree", "other bytes than rank 0"))
    entry = recorder.entries()[-1]
    assert (failure.code, failure.rank, failure.phase) == ("contract.ranks_disagree", 0, "only")
    assert (entry.kind, entry.error, entry.payload_sha256) == ("PARTIAL", failure.code, None)
    assert recorder.frames == PARTIAL_AT + 1


def test_a_condemned_frame_that_is_not_the_newest_gets_an_entry_of_its_own() -> None:
    """The failing entry is the last one, and no earlier entry is rewritten."""
    recorder = Recorder()
    connection = at_partial(recorder)
    at_partial(recorder)
    before = recorder.ledger()
    connection.fail(ContractError("program", "found late"))
    assert recorder.ledger().startswith(before)
    entry = recorder.entries()[-1]
    assert (entry.kind, entry.error) == (None, "contract.program")


def test_a_worker_locates_its_failures_without_a_ledger() -> None:
    connection = Connection(Side.WORKER, Session(), 2)
    connection.send(Kind.HELLO, Hello("little", "<f4", 2).to_bytes())
    failure = connection.fail(DeadlineError("receive", "no ACK"))
    assert (failure.code, failure.rank, failure.phase) == ("deadline.handshake", 2, "hello")


def test_a_worker_that_condemns_ack_does_so_in_phase_hello() -> None:
    connection = Connection(Side.WORKER, Session(), 0)
    connection.send(Kind.HELLO, Hello("little", "<f4", 0).to_bytes())
    connection.receive_data(bytes.fromhex(CLEAN[1]["bytes"]))
    assert connection.next_frame() is not None
    failure = connection.fail(ContractError("program", "another digest"))
    assert failure.phase == "hello"


def test_a_refused_frame_is_located_where_it_was_due() -> None:
    """Its transition is taken before its metadata is judged (S5), its phase is the one before."""
    worker = Connection(Side.WORKER, Session(("only",)), 0)
    walk_to_open(worker)
    for event in CLEAN[PARTIAL_AT : PARTIAL_AT + 2]:
        raw, metadata = bytes.fromhex(event["bytes"]), event["metadata"].encode("ascii")
        worker.send(Kind[event["kind"]], metadata, raw[36 + len(metadata) :])
    worker.receive_data(bytes.fromhex(CLEAN[PARTIAL_AT + 2]["bytes"]))
    with pytest.raises(ContractError) as refused:
        worker.next_frame(b'{"rank":1}')
    assert (refused.value.code, refused.value.phase) == ("contract.metadata", "only")


def test_the_payload_must_fit_the_metadata_whether_it_was_predicted_or_not() -> None:
    metadata = Tensor("<f4", "only", 0, (1, 1, 2), "only.partial").to_bytes()
    for expected, payload_bytes in ((metadata, None), (metadata, 8), (None, None), (None, 8)):
        sender = Connection(Side.WORKER, Session(("only",)), 0)
        receiver = at_partial()
        walk_to_open(sender)
        for buffer in sender.send(Kind.PARTIAL, metadata, bytes(12)):
            receiver.receive_data(buffer)
        with pytest.raises(ContractError) as refused:
            receiver.next_frame(expected, payload_bytes)
        assert refused.value.code == "contract.metadata"


def test_a_tensor_that_nobody_predicted_is_still_parsed() -> None:
    sender, receiver = Connection(Side.WORKER, Session(("only",)), 0), at_partial()
    walk_to_open(sender)
    for buffer in sender.send(Kind.PARTIAL, Fence("only", 0, None, 1).to_bytes(), bytes(8)):
        receiver.receive_data(buffer)
    with pytest.raises(ContractError) as refused:
        receiver.next_frame()
    assert refused.value.code == "contract.metadata"


def test_an_empty_result_has_no_payload() -> None:
    result = Result("<f4", "result", 0, (0, 4), "tokens", {"digest": "x"}, 0).to_bytes()
    receiver = coordinator(None)
    assert play(receiver, CLEAN[:-1], 100) is None
    sender = Connection(Side.WORKER, Session(("only",)), 0)
    walk_to_open(sender)
    for event in CLEAN[PARTIAL_AT:-1]:
        raw, metadata = bytes.fromhex(event["bytes"]), event["metadata"].encode("ascii")
        if event["do"] == "send":
            sender.receive_data(raw)
            assert sender.next_frame() is not None
        else:
            sender.send(Kind[event["kind"]], metadata, raw[36 + len(metadata) :])
    for buffer in sender.send(Kind.RESULT, result):
        receiver.receive_data(buffer)
    frame = receiver.next_frame()
    assert frame is not None
    assert frame.payload == b""


def walk_to_open(worker: Connection) -> None:
    """Bring a worker's end to OPEN with the clean conversation."""
    for event in CLEAN[:PARTIAL_AT]:
        if event["do"] == "receive":
            worker.send(Kind[event["kind"]], event["metadata"].encode("ascii"))
        else:
            worker.receive_data(bytes.fromhex(event["bytes"]))
            assert worker.next_frame() is not None


class TestEnd:
    """S2: only the coordinator ends a session, and only in IDLE."""

    def at_idle(self, side: Side) -> Connection:
        session = Session(("only",))
        session.adopt_epoch(1)
        for kind in (Kind.HELLO, Kind.ACK, Kind.LOAD, Kind.FENCE):
            session.stamp(kind.sender, kind)
        return Connection(side, session, 0)

    def test_clean_for_the_worker_again_and_again(self) -> None:
        worker = self.at_idle(Side.WORKER)
        assert worker.next_frame() is None
        assert not worker.closed
        worker.receive_eof()
        for _ in range(2):
            assert worker.next_frame() is None
            assert worker.closed

    def test_a_worker_that_leaves_is_noticed_while_idle(self) -> None:
        connection = self.at_idle(Side.COORDINATOR)
        connection.receive_eof()
        with pytest.raises(ProtocolError) as closed:
            connection.next_frame()
        assert closed.value.code == "protocol.closed"

    def test_inside_a_frame_it_is_truncated_also_while_idle(self) -> None:
        worker = self.at_idle(Side.WORKER)
        worker.receive_data(b"RK")
        worker.receive_eof()
        with pytest.raises(ProtocolError) as cut:
            worker.next_frame()
        assert cut.value.code == "protocol.truncated"


def test_a_recorded_payload_is_the_one_that_was_sent() -> None:
    """The caller may reuse its array as soon as the frame is written."""
    recorder = Recorder()
    connection = coordinator(recorder)
    assert play(connection, CLEAN[:2], 100) is None
    payload = bytearray(bytes.fromhex(CLEAN[2]["payload"]))
    connection.send(Kind.WEIGHT, CLEAN[2]["metadata"].encode("ascii"), memoryview(payload))
    tape = recorder.tape()
    payload[:] = bytes(len(payload))
    assert recorder.tape() == tape


@pytest.mark.parametrize(
    ("shape", "payload"), [((3,), b"87654321"), ((2,), b"4321"), ((1, 1), b"4321")]
)
def test_repeated_unpredicted_metadata_is_judged_like_the_first(
    shape: tuple[int, ...], payload: bytes
) -> None:
    sender, receiver = coordinator(None), Connection(Side.WORKER, Session(), FILE["rank"])
    hello = Hello(byte_order="little", dtype="<f4", rank=FILE["rank"]).to_bytes()
    for buffer in receiver.send(Kind.HELLO, hello):
        sender.receive_data(buffer)
    assert sender.next_frame(hello) is not None

    def deliver(kind: Kind, metadata: bytes, body: bytes) -> Frame | None:
        for buffer in sender.send(kind, metadata, body):
            receiver.receive_data(buffer)
        return receiver.next_frame()

    def weight(extent: tuple[int, ...]) -> bytes:
        tensor = Tensor(dtype="<f4", phase="load", rank=0, shape=extent, tensor="w")
        return tensor.to_bytes()

    assert deliver(Kind.ACK, b"{}", b"") is not None
    for _ in range(3):
        assert deliver(Kind.WEIGHT, weight((2,)), b"12345678") is not None
    if len(payload) == 4 * math.prod(shape):
        assert deliver(Kind.WEIGHT, weight(shape), payload) is not None
        return
    with pytest.raises(ContractError) as refusal:
        deliver(Kind.WEIGHT, weight(shape), payload)
    assert refusal.value.code == "contract.metadata"
