"""What a run keeps: everything with its bytes, or counts and the recent past."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256

import pytest

from errors import MisuseError
from wire.frame import Header, Kind, Side
from wire.ledger import totals
from wire.metadata import Tensor
from wire.recorder import RECENT_ENTRIES_MAX, RECORD_BYTES, Record, Recorder
from wire.session import State

METADATA = Tensor("<f4", "mlp", 1, (2,), "mlp.total").to_bytes()
HEADER = Header(Kind.REDUCTION, 0, 3, 4, len(METADATA), 8, 99)
SENT = Record(Side.COORDINATOR, 1, State.FENCED, "mlp", HEADER, METADATA, b"12345678", None, None)
NOTHING = Record(Side.WORKER, 0, State.OPEN, "mlp", None, None, b"", "protocol.closed", b"")


def test_an_entry_of_a_sent_tensor() -> None:
    recorder = Recorder()
    recorder.record(SENT)
    (entry,) = recorder.entries()
    assert (entry.index, entry.direction, entry.rank, entry.kind) == (0, "send", 1, "REDUCTION")
    assert (entry.tensor, entry.shape) == ("mlp.total", (2,))
    assert entry.payload_sha256 == sha256(b"12345678").hexdigest()
    assert recorder.tape().endswith(HEADER.to_bytes() + METADATA + b"12345678")


def test_totals_equal_those_of_the_entries() -> None:
    recorder = Recorder()
    for record in (SENT, NOTHING, SENT):
        recorder.record(record)
    assert recorder.totals() == totals(recorder.entries())
    assert recorder.frames == 3


def test_only_the_newest_record_is_amended() -> None:
    recorder = Recorder()
    assert not recorder.amend(SENT, "contract.kind")
    newest = SENT._replace(rank=2)
    recorder.record(SENT)
    recorder.record(newest)
    assert not recorder.amend(SENT, "contract.kind")
    assert recorder.amend(newest, "contract.kind")
    assert [entry.error for entry in recorder.entries()] == [None, "contract.kind"]
    assert recorder.entries()[1].payload_sha256 is None


def test_without_bytes_memory_is_bounded_and_counts_go_on() -> None:
    recorder = Recorder(keep_bytes=False)
    bare = SENT._replace(payload=b"")
    for _ in range(RECENT_ENTRIES_MAX):
        recorder.record(bare)
    tracemalloc.start()
    for _ in range(5 * RECENT_ENTRIES_MAX):
        recorder.record(bare)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 10_000
    assert recorder.frames == 6 * RECENT_ENTRIES_MAX
    assert recorder.totals().payload_bytes == 8 * recorder.frames
    entries = recorder.entries()
    assert [entries[0].index, entries[-1].index] == [5 * RECENT_ENTRIES_MAX, recorder.frames - 1]
    assert entries[0].payload_sha256 is None
    with pytest.raises(MisuseError):
        recorder.tape()


def held_bytes(recorder: Recorder) -> int:
    """What the bound is about, counted from outside."""
    records = recorder.since(0)
    return sum(RECORD_BYTES + len(r.metadata or b"") + len(r.payload) for r in records)


@pytest.mark.parametrize("frames", [1, 2, 3, 7, 50])
def test_the_newest_frames_are_kept_with_payloads_within_a_bound(frames: int) -> None:
    one = RECORD_BYTES + len(METADATA) + len(SENT.payload)
    recorder = Recorder(False, recent_bytes=3 * one + 1)
    numbered = [SENT._replace(rank=rank) for rank in range(frames)]
    for at, record in enumerate(numbered):
        recorder.record(record)
        assert held_bytes(recorder) <= 3 * one + 1
        assert recorder.oldest == max(0, at + 1 - 3)
    assert recorder.since(0) == tuple(numbered[-3:])
    assert recorder.since(frames - 1) == (numbered[-1],)
    assert recorder.since(frames) == ()
    assert recorder.frames == frames
    assert recorder.totals().payload_bytes == 8 * frames
    entries = recorder.entries()
    assert [entry.index for entry in entries] == list(range(recorder.oldest, frames))
    assert entries[-1].payload_sha256 == sha256(b"12345678").hexdigest()
    with pytest.raises(MisuseError):
        recorder.tape()


def test_a_frame_beyond_the_bound_stays_until_the_next_so_that_it_can_be_amended() -> None:
    recorder = Recorder(False, recent_bytes=1)
    newest = SENT._replace(rank=7)
    recorder.record(SENT)
    recorder.record(newest)
    assert recorder.since(0) == (newest,)
    assert recorder.amend(newest, "contract.kind")
    assert recorder.since(0) == (newest._replace(error="contract.kind"),)


def test_a_steady_stream_of_frames_holds_no_more_memory() -> None:
    recorder = Recorder(False, recent_bytes=100_000)
    for _ in range(1000):
        recorder.record(SENT)
    tracemalloc.start()
    for _ in range(5000):
        recorder.record(SENT)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 10_000


@pytest.mark.parametrize(("keep", "size"), [(True, 100), (False, 0), (False, -1)])
def test_a_recorder_has_one_mode(keep: bool, size: int) -> None:
    with pytest.raises(MisuseError):
        Recorder(keep, recent_bytes=size)


def test_since_is_the_end_of_what_the_other_modes_keep() -> None:
    whole, bare = Recorder(), Recorder(keep_bytes=False)
    for recorder in (whole, bare):
        for _ in range(RECENT_ENTRIES_MAX + 5):
            recorder.record(SENT)
    assert (whole.oldest, bare.oldest) == (0, 5)
    assert len(whole.since(3)) == RECENT_ENTRIES_MAX + 2
    assert len(bare.since(3)) == RECENT_ENTRIES_MAX
    assert whole.with_payloads
    assert not bare.with_payloads


def test_what_is_kept_of_a_sent_payload() -> None:
    """A sender may change its own buffer afterwards; a read-only view can't be changed through."""
    own = bytearray(b"12345678")
    view = memoryview(b"12345678")
    whole, recent, bare = Recorder(), Recorder(False, recent_bytes=999), Recorder(False)
    assert recent.kept(view) is view
    for recorder in (whole, recent):
        for payload in (own, memoryview(own), view):
            kept = recorder.kept(payload)
            assert kept == b"12345678"
            assert kept is view or type(kept) is bytes
    assert type(whole.kept(view)) is bytes
    assert bare.kept(own) == b""
