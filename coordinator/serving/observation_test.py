"""Everything that observes, over engines with fake ranks: what a failure leaves behind."""

from __future__ import annotations

import json
import stat
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from coordinator.engine import Failure
from coordinator.process_table import wait_until
from coordinator.serving.fake_served import GONE, FakeServed
from coordinator.serving.fake_steps import FRAMES, frame, observed
from coordinator.serving.flight import STEPS
from coordinator.serving.observation import Observation, ObservedEpoch, ObserveOptions
from coordinator.serving.served import Phase
from errors import ConfigError, DeadlineError, PeerError
from wire.frame import Kind, Side
from wire.ledger import Entry

SOURCE = "a" * 64
SLOW = DeadlineError("receive", "nothing came in time", rank=0, phase="load")


class Service:
    """One service whose groups are given steps by the test."""

    def __init__(self, served: FakeServed, options: ObserveOptions) -> None:
        self.served = served
        self.said: list[str] = []
        self.observation = Observation(
            options, source=SOURCE, clock=time.monotonic, tell=self.said.append
        )

    @contextmanager
    def group(self) -> Iterator[ObservedEpoch]:
        """Loaded, and with ten steps behind it."""
        with self.observation.epoch(1, self.served) as seen:
            seen.observer.began(2, lambda rank: "idle")
            for number in range(10):
                seen.observer.stepped(observed(number, seen.recorder))
            yield seen

    def fail(self, seen: ObservedEpoch, cause: PeerError = GONE) -> None:
        """While a step runs: its last frame is refused."""
        step = observed(10, seen.recorder, failure=cause)
        refused = frame(Side.WORKER, 1, Kind.RESULT, 99, (1.0,))
        seen.recorder.record(refused._replace(error=cause.code))
        seen.observer.stepped(step)
        self.served.poison(cause)
        wait_until(lambda: self.served.phase is Phase.FAILED)


@pytest.fixture
def served() -> Iterator[FakeServed]:
    with FakeServed() as fake:
        yield fake


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_failure_leaves_a_flight_file_that_names_the_frame(
    served: FakeServed, tmp_path: Path
) -> None:
    service = Service(served, ObserveOptions(dump_dir=tmp_path / "dump"))
    with service.group() as seen:
        service.fail(seen)
    (path,) = (tmp_path / "dump").iterdir()
    assert path.name == "flight-1.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(service.said) == 1
    lines = lines_of(path)
    head, failure, state = lines[:3]
    assert (head["type"], head["group_epoch"], head["source"]) == ("flight", 1, SOURCE)
    assert (failure["type"], failure["code"], failure["rank"]) == ("failure", GONE.code, 1)
    assert state["state"]["failure"]["cause"]["code"] == GONE.code
    steps = [line["step"] for line in lines if line["type"] == "step"]
    assert steps == list(range(11 - STEPS, 11))
    frames = [line for line in lines if line["type"] == "frame"]
    assert len(frames) == STEPS * FRAMES + 1
    assert {line["rank"] for line in frames} == {0, 1}
    # A ledger line's keys and these: no more than `diff_trace` reads, and no less.
    more = {"type", "step", "metadata", "payload"}
    assert all(line.keys() == {field.name for field in fields(Entry)} | more for line in frames)
    last = frames[-1]
    assert (last["kind"], last["rank"], last["error"]) == ("RESULT", 1, GONE.code)
    partial = next(line for line in frames if line["kind"] == "PARTIAL")
    assert sha256(b64decode(partial["payload"])).hexdigest() == partial["payload_sha256"]
    assert "MainThread" in {line["thread"] for line in lines if line["type"] == "thread"}
    assert lines[-1] == {"type": "end", "lines": len(lines) - 1}


def test_a_second_failure_of_the_same_epoch_does_not_touch_the_first(
    served: FakeServed, tmp_path: Path
) -> None:
    (tmp_path / "flight-1.jsonl").write_text("mine")
    service = Service(served, ObserveOptions(dump_dir=tmp_path))
    with service.group() as seen:
        service.fail(seen)
    assert (tmp_path / "flight-1.jsonl").read_text() == "mine"
    assert lines_of(tmp_path / "flight-1-2.jsonl")[-1]["type"] == "end"


def test_a_load_that_fails(served: FakeServed, tmp_path: Path) -> None:
    service = Service(served, ObserveOptions(dump_dir=tmp_path))

    def load() -> None:
        with service.observation.epoch(4, served) as seen:
            seen.recorder.record(frame(Side.WORKER, 0, Kind.HELLO, 0))
            raise SLOW

    with pytest.raises(DeadlineError):
        load()
    lines = lines_of(tmp_path / "flight-4.jsonl")
    assert (lines[1]["code"], lines[1]["step"]) == (SLOW.code, None)
    assert lines[2] == {"type": "state", "state": None}
    assert [line["kind"] for line in lines if line["type"] == "frame"] == ["HELLO"]


def test_a_load_that_the_service_ends_itself_is_no_failure(
    served: FakeServed, tmp_path: Path
) -> None:
    service = Service(served, ObserveOptions(dump_dir=tmp_path))
    served.phase = Phase.STOPPING
    with pytest.raises(DeadlineError), service.observation.epoch(1, served):
        raise SLOW
    assert list(tmp_path.iterdir()) == []


def test_a_group_that_ends_well_leaves_nothing(served: FakeServed, tmp_path: Path) -> None:
    service = Service(served, ObserveOptions(dump_dir=tmp_path))
    with service.group():
        pass
    assert list(tmp_path.iterdir()) == []
    assert service.said == []


def test_a_full_disk_is_told_and_counted(
    served: FakeServed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(served, ObserveOptions(dump_dir=tmp_path))
    monkeypatch.setattr("coordinator.serving.flight.FILE_BYTES_MAX", 5_000)
    with service.group() as seen:
        service.fail(seen)
    text = service.observation.metrics.exposition(served).decode()
    assert 'rankproof_trace_lost_total{sink="flight"} 1.0' in text
    assert 'rankproof_failures_total{code="protocol.closed",rank="1"} 1.0' in text
    # What is there is whole lines.
    assert lines_of(tmp_path / "flight-1.jsonl")[0]["type"] == "flight"


def test_without_a_folder_a_failure_is_only_counted(served: FakeServed) -> None:
    service = Service(served, ObserveOptions())
    with service.group() as seen:
        service.fail(seen)
    assert service.said == []
    text = service.observation.metrics.exposition(served).decode()
    assert 'rankproof_failures_total{code="protocol.closed",rank="1"} 1.0' in text


def test_traces_and_log_are_fed_and_closed(served: FakeServed, tmp_path: Path) -> None:
    options = ObserveOptions(tmp_path / "t.jsonl", tmp_path / "c.json")
    service = Service(served, options)
    with service.group():
        pass
    service.observation.close()
    service.observation.close()
    assert [line["step"] for line in lines_of(tmp_path / "t.jsonl")] == list(range(10))
    assert json.loads((tmp_path / "c.json").read_text())
    assert len(service.observation.log.recent(99)) == 10


@pytest.mark.parametrize("field", ["trace", "chrome_trace", "dump_dir"])
def test_what_can_t_be_written_is_refused_before_anything_starts(
    tmp_path: Path, field: str
) -> None:
    (tmp_path / "file").write_text("")
    changed: dict[str, Any] = {field: tmp_path / "file" / "x"}
    options = replace(ObserveOptions(), **changed)
    with pytest.raises(ConfigError) as refused:
        Observation(options, source=SOURCE, clock=time.monotonic)
    assert refused.value.problems[0].field == "--" + field.replace("_", "-")


def test_payloads_beyond_the_bound_are_named_by_their_digest(
    served: FakeServed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.serving.flight.PAYLOAD_BYTES_MAX", 3 * 16 + 4)
    service = Service(served, ObserveOptions(dump_dir=tmp_path))
    with service.group() as seen:
        service.fail(seen)
    frames = [line for line in lines_of(tmp_path / "flight-1.jsonl") if line["type"] == "frame"]
    tensors = [line for line in frames if line["payload_bytes"]]
    assert [line["payload"] is not None for line in tensors[-5:]] == [False, True, True, True, True]
    assert all(line["payload_sha256"] for line in tensors[:-1])
    assert Failure(GONE, None).step is None
