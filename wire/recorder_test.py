"""What a run keeps: everything with its bytes, or counts and the recent past."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256

import pytest

from errors import MisuseError
from wire.frame import Header, Kind, Side
from wire.ledger import totals
from wire.metadata import Tensor
from wire.recorder import RECENT_ENTRIES_MAX, Record, Recorder
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
