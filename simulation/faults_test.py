"""Where each fault strikes, and what it makes of a frame."""

from __future__ import annotations

from itertools import product

import pytest

from errors import ProtocolError
from simulation.faults import (
    APPLY,
    Fault,
    FaultInjector,
    FaultKind,
    RankEnded,
    split_frames,
    strikes,
    take_apart,
)
from wire.frame import Frame, Kind, encode
from wire.frame_reader import FrameReader
from wire.limits import HEADER_BYTES
from wire.metadata import Fence, Hello, Result, Tensor

WORLD_SIZE = 4
RANK = 3
EPOCH, SEQUENCE = 7, 3
PAYLOAD = bytes(range(16))
PHASES = ("attention", "mlp", "result")


def frame(kind: Kind, phase: str = "") -> bytes:
    metadata = {
        Kind.HELLO: Hello("little", "<f4", RANK),
        Kind.PARTIAL: Tensor("<f4", phase, RANK, (1, 4), f"{phase}.partial"),
        Kind.FENCE: Fence(phase, RANK, None, 1),
        Kind.RESULT: Result("<f4", phase, RANK, (1, 4), "y", None, 0),
    }[kind].to_bytes()
    payload = PAYLOAD if kind in (Kind.PARTIAL, Kind.RESULT) else b""
    _, buffers = encode(kind, epoch=EPOCH, sequence=SEQUENCE, metadata=metadata, payload=payload)
    return b"".join(buffers)


# All that a worker sends, in its order.
FRAMES = {
    ("HELLO", ""): frame(Kind.HELLO),
    ("PARTIAL", "attention"): frame(Kind.PARTIAL, "attention"),
    ("FENCE", "attention"): frame(Kind.FENCE, "attention"),
    ("PARTIAL", "mlp"): frame(Kind.PARTIAL, "mlp"),
    ("FENCE", "mlp"): frame(Kind.FENCE, "mlp"),
    ("RESULT", "result"): frame(Kind.RESULT, "result"),
}


class Journal:
    """What a fault did to the world."""

    def __init__(self) -> None:
        self.events: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.events.append(data)

    def wait_for_hangup(self) -> None:
        self.events.append("wait")


def injected(kind: FaultKind, phase: str, raw: bytes) -> tuple[list[bytes | str], bool]:
    """What happens to one frame, and whether the rank ends."""
    journal = Journal()
    try:
        FaultInjector(Fault(kind, phase, WORLD_SIZE), journal).send([raw])
    except RankEnded:
        return journal.events, True
    return journal.events, False


def read(raw: bytes) -> Frame:
    reader = FrameReader()
    reader.receive_data(raw)
    found = reader.next_frame()
    assert found is not None
    return found


@pytest.mark.parametrize(("kind", "phase"), list(product(FaultKind, PHASES)))
def test_where_it_strikes(kind: FaultKind, phase: str) -> None:
    """The first frame that the rank owes in the phase, or the last (docs/spec/evidence.md E7)."""
    struck = [name for name, raw in FRAMES.items() if strikes(Fault(kind, phase, WORLD_SIZE), raw)]
    last = kind is FaultKind.CANCELLATION_RACE
    place = "RESULT" if phase == "result" else "FENCE" if last else "PARTIAL"
    assert struck == [(place, phase)]


@pytest.mark.parametrize("kind", FaultKind)
def test_in_the_phase_of_a_plan_the_fence_is_first_and_last(kind: FaultKind) -> None:
    raw = frame(Kind.FENCE, "plan")
    assert strikes(Fault(kind, "plan", WORLD_SIZE), raw)
    assert not strikes(Fault(kind, "mlp", WORLD_SIZE), raw)


@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_taken_apart_and_joined(name: tuple[str, str]) -> None:
    raw = FRAMES[name]
    parts = take_apart(raw)
    assert parts.kind.name == name[0]
    assert parts.joined() == raw


def test_frames_of_one_write_are_split() -> None:
    frames = list(FRAMES.values())
    assert list(split_frames(b"".join(frames))) == frames
    assert list(split_frames(b"")) == []


def test_every_kind_can_be_applied() -> None:
    assert set(APPLY) == set(FaultKind)


def test_a_rank_that_exits() -> None:
    assert injected(FaultKind.RANK_EXIT, "mlp", FRAMES["PARTIAL", "mlp"]) == ([], True)


def test_a_truncated_frame() -> None:
    """The header and the first half of the metadata, rounded up."""
    raw = FRAMES["PARTIAL", "mlp"]
    metadata_bytes = len(raw) - HEADER_BYTES - len(PAYLOAD)
    half = HEADER_BYTES + (metadata_bytes + 1) // 2
    assert injected(FaultKind.TRUNCATED_FRAME, "mlp", raw) == ([raw[:half]], True)


def test_a_corrupted_frame() -> None:
    """One bit of the body, so that only the checksum can tell."""
    raw = FRAMES["PARTIAL", "mlp"]
    (written,), ended = injected(FaultKind.CHECKSUM_CORRUPTION, "mlp", raw)
    assert isinstance(written, bytes)
    assert not ended
    assert [at for at in range(len(raw)) if raw[at] != written[at]] == [len(raw) - 1]
    with pytest.raises(ProtocolError) as refused:
        read(written)
    assert refused.value.code == "protocol.checksum"


@pytest.mark.parametrize(
    ("kind", "epoch", "sequence"),
    [
        (FaultKind.STALE_EPOCH, EPOCH - 1, SEQUENCE),
        (FaultKind.DUPLICATE_SEQUENCE, EPOCH, SEQUENCE - 1),
    ],
)
def test_a_stale_header(kind: FaultKind, epoch: int, sequence: int) -> None:
    """Otherwise the frame is sound."""
    raw = FRAMES["RESULT", "result"]
    (written,), ended = injected(kind, "result", raw)
    assert isinstance(written, bytes)
    assert not ended
    found, sound = read(written), read(raw)
    assert (found.header.epoch, found.header.sequence) == (epoch, sequence)
    assert found == Frame(
        sound.header._replace(epoch=epoch, sequence=sequence), sound.metadata, sound.payload
    )


@pytest.mark.parametrize(("world_size", "named"), [(4, 0), (5, 4), (1, 0)])
def test_another_rank_is_named(world_size: int, named: int) -> None:
    """A sound frame of another rank, also in a world of one."""
    raw, journal = FRAMES["PARTIAL", "attention"], Journal()
    fault = Fault(FaultKind.METADATA_MISMATCH, "attention", world_size)
    FaultInjector(fault, journal).send([raw])
    (written,) = journal.events
    assert isinstance(written, bytes)
    assert Tensor.parse(read(written).metadata).rank == named
    assert read(written).payload == PAYLOAD


def test_a_world_of_one_names_a_rank_that_does_not_exist() -> None:
    metadata = Tensor("<f4", "mlp", 0, (1, 4), "mlp.partial").to_bytes()
    _, buffers = encode(Kind.PARTIAL, epoch=1, sequence=1, metadata=metadata, payload=PAYLOAD)
    journal = Journal()
    FaultInjector(Fault(FaultKind.METADATA_MISMATCH, "mlp", 1), journal).send(buffers)
    (written,) = journal.events
    assert isinstance(written, bytes)
    assert Tensor.parse(read(written).metadata).rank == 1


def test_a_delayed_frame_comes_after_the_hang_up() -> None:
    raw = FRAMES["PARTIAL", "mlp"]
    assert injected(FaultKind.DELAY, "mlp", raw) == (["wait", raw], True)


def test_a_cancelled_rank_owes_its_last_frame_for_ever() -> None:
    raw = FRAMES["FENCE", "mlp"]
    assert injected(FaultKind.CANCELLATION_RACE, "mlp", raw) == (["wait"], True)


@pytest.mark.parametrize("kind", FaultKind)
def test_frames_in_one_write_pass_up_to_the_struck_one(kind: FaultKind) -> None:
    before, struck = FRAMES["HELLO", ""], FRAMES["PARTIAL", "mlp"]
    if kind is FaultKind.CANCELLATION_RACE:
        struck = FRAMES["FENCE", "mlp"]
    alone, ended = injected(kind, "mlp", struck)
    journal = Journal()
    injector = FaultInjector(Fault(kind, "mlp", WORLD_SIZE), journal)
    try:
        injector.send([before, struck])
        assert not ended
    except RankEnded:
        assert ended
    assert journal.events == [before, *alone]
    assert injector.struck


def test_a_fault_strikes_once() -> None:
    raw, journal = FRAMES["PARTIAL", "mlp"], Journal()
    injector = FaultInjector(Fault(FaultKind.STALE_EPOCH, "mlp", WORLD_SIZE), journal)
    for _ in range(2):
        injector.send([raw])
    assert journal.events[0] != raw
    assert journal.events[1] == raw
