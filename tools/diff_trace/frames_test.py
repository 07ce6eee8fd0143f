"""Inputs are read strictly: what none of our writers wrote is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.fake_rank import record_run
from coordinator.run_files import LEDGER, TAPE, RunFiles
from errors import ConfigError
from manifest.run_manifest import from_flags
from tools.diff_trace.frames import read_frames
from tools.diff_trace.written import flight_lines, trace_lines

MANIFEST = from_flags({"ranks": "2", "batch": "1", "sequence": "2", "seed": "3"})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    record_run(MANIFEST, RunFiles(tmp_path / "run"))
    return tmp_path / "run"


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_folder_and_its_ledger_have_the_same_frames(run: Path) -> None:
    folder, ledger = read_frames(run), read_frames(run / LEDGER)
    assert [frame.entry for frame in folder] == [frame.entry for frame in ledger]
    assert all(frame.raw for frame in folder)
    assert not any(frame.raw for frame in ledger)


def test_a_step_trace(run: Path, tmp_path: Path) -> None:
    expected = [frame.entry for frame in read_frames(run)]
    frames = read_frames(write(tmp_path / "t.jsonl", trace_lines(run)))
    assert [frame.entry.checksum for frame in frames] == [entry.checksum for entry in expected]
    assert {frame.step for frame in frames} == {0, 1}
    assert not any(frame.has_digest for frame in frames)


def test_half_a_line_at_the_end_of_a_trace_is_not_looked_at(run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", trace_lines(run))
    whole = read_frames(path)
    with path.open("a") as file:
        file.write('{"type": "st')
    assert read_frames(path) == whole


def test_a_flight_has_the_frames_as_they_travelled(run: Path, tmp_path: Path) -> None:
    frames = read_frames(write(tmp_path / "f.jsonl", flight_lines(run)))
    assert [frame.raw for frame in frames] == [frame.raw for frame in read_frames(run)]


def edited(key: str, value: object, at: int = 1) -> Callable[[list[dict[str, Any]]], None]:
    def edit(lines: list[dict[str, Any]]) -> None:
        lines[at][key] = value

    return edit


def in_a_frame(key: str, value: object) -> Callable[[list[dict[str, Any]]], None]:
    def edit(lines: list[dict[str, Any]]) -> None:
        lines[1]["frames"][0][key] = value

    return edit


BROKEN_TRACES: dict[str, Callable[[list[dict[str, Any]]], None]] = {
    "another version": edited("version", 2),
    "another type": edited("type", "stop"),
    "no frames": edited("frames", None),
    "frames of another type": edited("frames", [7]),
    "no step": edited("step", "one"),
    "another key": in_a_frame("more", 1),
    "a kind of nobody": in_a_frame("kind", "GREETING"),
    "a checksum beyond 32 bits": in_a_frame("checksum", 2**32),
    "a negative index": in_a_frame("index", -4),
    "an index that is true": in_a_frame("index", True),
    "a rank in words": in_a_frame("rank", "one"),
}


@pytest.mark.parametrize("name", BROKEN_TRACES)
def test_broken_traces(run: Path, tmp_path: Path, name: str) -> None:
    lines = trace_lines(run)
    BROKEN_TRACES[name](lines)
    with pytest.raises(ConfigError):
        read_frames(write(tmp_path / "t.jsonl", lines))


BROKEN_FLIGHTS: dict[str, Callable[[list[dict[str, Any]]], None]] = {
    "another version": edited("version", 2, at=0),
    "another type of line": edited("type", "frames"),
    "metadata of another length": edited("metadata", "{}"),
    "metadata beyond ASCII": edited("metadata", "\u00e9"),
    "no base64": edited("payload", "?"),
    "a payload of another length": edited("payload", "AAAA"),
    "a payload that is a number": edited("payload", 7),
    "a step in words": edited("step", "one"),
}


@pytest.mark.parametrize("name", BROKEN_FLIGHTS)
def test_broken_flights(run: Path, tmp_path: Path, name: str) -> None:
    lines = flight_lines(run)
    BROKEN_FLIGHTS[name](lines)
    with pytest.raises(ConfigError):
        read_frames(write(tmp_path / "f.jsonl", lines))


BROKEN_FILES = {
    "not there": None,
    "no JSON": b"hello\n",
    "a list": b"[]\n",
    "a ledger without its end": b'{"index":0}',
    "two keys of one name": b'{"type":"step","type":"flight"}\n',
    "not a number": b'{"type":NaN}\n',
    "bytes": b"\xff\xfe\n",
    "nested": b"[" * 100_000 + b"\n",
}


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_broken_files(tmp_path: Path, name: str) -> None:
    data = BROKEN_FILES[name]
    if data is not None:
        (tmp_path / "f").write_bytes(data)
    with pytest.raises(ConfigError):
        read_frames(tmp_path / "f")


def test_a_folder_that_is_no_run(run: Path) -> None:
    (run / TAPE).unlink()
    with pytest.raises(ConfigError):
        read_frames(run)


def test_a_file_beyond_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.diff_trace.frames.TRACE_BYTES_MAX", 10)
    (tmp_path / "f").write_bytes(b"x" * 11)
    with pytest.raises(ConfigError):
        read_frames(tmp_path / "f")
