"""A recorded run replays to the same bytes; a difference is named by frame, field and values."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from coordinator.fake_rank import FakePipe, Tamper, record_run
from coordinator.options import ReplayOptions
from coordinator.recording import Recording, read_recording
from coordinator.replay import show_replay
from coordinator.replay_coordinator import replay_coordinator
from coordinator.replay_worker import replay_worker
from coordinator.run_files import MANIFEST, TAPE, RunFiles
from coordinator.terminal import Style
from errors import ConfigError
from manifest.run_manifest import from_flags
from wire.frame import Side
from wire.link import Pipe
from wire.tape import TapeRecord

FLAGS = {"ranks": "2", "batch": "1", "sequence": "2", "sum_order": "pairwise"}
FRAMES_SENT = 6
FRAMES = 19


def recorded(directory: Path, tamper: Tamper | None = None) -> Recording:
    record_run(from_flags(FLAGS), RunFiles(directory), tamper)
    return read_recording(directory)


def opener(bias: float = 0.0) -> Callable[[int], AbstractContextManager[Pipe]]:
    @contextmanager
    def open_worker(rank: int) -> Iterator[Pipe]:
        yield FakePipe(rank, bias=bias)

    return open_worker


def tampering(at_rank: int, at_frame: int, change: Callable[[bytes], bytes | None]) -> Tamper:
    def tamper(rank: int, index: int, raw: bytes) -> bytes | None:
        return change(raw) if (rank, index) == (at_rank, at_frame) else raw

    return tamper


# Every way a recorded run can have ended; frame 3 is the PARTIAL of mlp.
ENDINGS: dict[str, Tamper] = {
    "silent": tampering(1, 3, lambda raw: None),
    "closed": lambda rank, index, raw: b"" if rank == 1 and index >= 3 else raw,
    "truncated": lambda rank, index, raw: (
        raw if rank == 0 or index < 3 else raw[:50] if index == 3 else b""
    ),
    "checksum": tampering(1, 3, lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])),
    "epoch": tampering(0, 3, lambda raw: raw[:15] + b"\x07" + raw[16:]),
    "magic": tampering(1, 3, lambda raw: b"HTTP/1.1 200 OK\r\n"),
    "size": tampering(1, 3, lambda raw: raw[:28] + b"\xff\xff\xff\xff" + raw[32:]),
    "hello": tampering(1, 0, lambda raw: raw[:-1] + b"!"),
}


def test_a_clean_run_replays_on_both_sides(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    assert recording.output is not None
    result = replay_coordinator(recording, None)
    assert (result.frames, result.difference) == (2 * FRAMES, None)
    result = replay_coordinator(recording, 1)
    assert (result.frames, result.difference) == (FRAMES, None)
    result = replay_worker(recording, None, opener())
    assert (result.frames, result.difference) == (2 * FRAMES_SENT, None)
    result = replay_worker(recording, 1, opener())
    assert (result.frames, result.difference) == (FRAMES_SENT, None)


@pytest.mark.parametrize("name", ENDINGS)
def test_the_coordinator_of_a_failed_run_replays_to_the_same_failure(
    tmp_path: Path, name: str
) -> None:
    recording = recorded(tmp_path, ENDINGS[name])
    assert recording.failed
    assert recording.output is None
    result = replay_coordinator(recording, None)
    assert result.difference is None


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("silent", "frame"),
        ("closed", "frame"),
        ("truncated", "length"),
        ("checksum", "payload element 31"),
        ("epoch", "epoch"),
        ("magic", "length"),
        ("size", "payload_bytes"),
    ],
)
def test_a_healthy_worker_does_not_do_what_a_faulty_one_did(
    tmp_path: Path, name: str, field: str
) -> None:
    recording = recorded(tmp_path, ENDINGS[name])
    result = replay_worker(recording, None, opener())
    assert result.difference is not None
    assert result.difference.what.field == field
    assert result.difference.index == recording.entries[-1].index


def test_a_worker_with_other_arithmetic_is_found_at_its_first_partial(tmp_path: Path) -> None:
    result = replay_worker(recorded(tmp_path), 1, opener(bias=0.5))
    assert result.difference is not None
    assert result.difference.rank == 1
    assert result.difference.what.field == "payload element 0"
    assert result.difference.what.taped.endswith("100.0")
    assert result.difference.what.replayed.endswith("100.5")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda raw: raw[:15] + b"\x09" + raw[16:], "epoch"),
        (lambda raw: raw[:23] + b"\x63" + raw[24:], "sequence"),
        (lambda raw: raw[:-4] + b"\0\0\0\0", "payload element"),
        (lambda raw: raw.replace(b'"rank":1', b'"rank":0'), "metadata rank"),
        (lambda raw: raw[:-4], "length"),
        (lambda raw: b"", "frame"),
    ],
)
def test_a_changed_send_is_found_by_the_coordinator(
    tmp_path: Path, change: Callable[[bytes], bytes], field: str
) -> None:
    recording = recorded(tmp_path)
    at = max(
        index
        for index, record in enumerate(recording.tape)
        if record.sender is Side.COORDINATOR and record.rank == 1
    )
    recording.tape[at] = TapeRecord(Side.COORDINATOR, 1, change(recording.tape[at].raw))
    result = replay_coordinator(recording, None)
    assert result.difference is not None
    assert result.difference.index == at
    assert result.difference.what.field.startswith(field)
    assert replay_coordinator(recording, 0).difference is None


def test_a_changed_output_is_found(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    output = recording.output or b""
    changed = Recording(recording.manifest, recording.entries, recording.tape, output[:-1] + b"\1")
    difference = replay_coordinator(changed, None).difference
    assert difference is not None
    assert difference.what.field == f"output byte {len(output) - 1}"


def test_another_seed_is_found_at_the_first_weight(tmp_path: Path) -> None:
    record_run(from_flags(FLAGS | {"seed": "5"}), RunFiles(tmp_path))
    (tmp_path / MANIFEST).write_bytes(from_flags(FLAGS).to_json_bytes())
    difference = replay_coordinator(read_recording(tmp_path), None).difference
    assert difference is not None
    assert difference.what.field == "payload element 0"


def test_a_run_that_never_began_has_nothing_to_replay(tmp_path: Path) -> None:
    recording = Recording(from_flags(FLAGS), [], [], None)
    assert replay_coordinator(recording, None).frames == 0


def test_a_rank_that_the_run_does_not_have(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    with pytest.raises(ConfigError):
        replay_coordinator(recording, 2)
    with pytest.raises(ConfigError):
        replay_worker(recording, 2, opener())


@pytest.mark.parametrize("role", ["coordinator", "worker"])
@pytest.mark.parametrize("rank", [None, 1])
def test_the_command(tmp_path: Path, role: str, rank: int | None) -> None:
    recorded(tmp_path)
    output = io.StringIO()
    options = ReplayOptions(tmp_path, role, rank)
    assert show_replay(options, opener(), output, Style()) == 0
    assert output.getvalue().startswith("ok ")


def test_the_command_tells_a_difference(tmp_path: Path) -> None:
    recorded(tmp_path)
    output = io.StringIO()
    options = ReplayOptions(tmp_path, "worker", 0)
    assert show_replay(options, opener(bias=1.0), output, Style()) == 1
    assert "payload element 0" in output.getvalue()


def test_the_command_refuses_a_broken_folder(tmp_path: Path) -> None:
    recorded(tmp_path)
    (tmp_path / TAPE).write_bytes(b"")
    with pytest.raises(ConfigError):
        show_replay(ReplayOptions(tmp_path, "worker"), opener(), io.StringIO(), Style())
