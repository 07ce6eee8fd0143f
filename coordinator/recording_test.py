"""A folder that no run wrote is one ConfigError, whatever is in it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.fake_rank import record_run
from coordinator.recording import TAPE_BYTES_MAX, read_recording
from coordinator.run_files import LEDGER, MANIFEST, OUTPUT, TAPE, RunFiles
from errors import ConfigError
from manifest.run_manifest import from_flags


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("good")
    flags = {"ranks": "1", "batch": "1", "sequence": "1"}
    record_run(from_flags(flags), RunFiles(directory))
    return directory


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "run"))


def test_a_good_folder(folder: Path) -> None:
    recording = read_recording(folder)
    assert len(recording.entries) == len(recording.tape) == 19
    assert not recording.failed
    assert recording.output == (folder / OUTPUT).read_bytes()


def test_a_failed_run_has_no_output(folder: Path) -> None:
    (folder / OUTPUT).unlink()
    assert read_recording(folder).output is None


def replaced(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


def sparse(folder: Path) -> None:
    with (folder / TAPE).open("wb") as file:
        file.truncate(TAPE_BYTES_MAX + 1)


def a_pipe(folder: Path) -> None:
    (folder / LEDGER).unlink()
    os.mkfifo(folder / LEDGER)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no folder": shutil.rmtree,
    "no manifest": lambda folder: (folder / MANIFEST).unlink(),
    "no ledger": lambda folder: (folder / LEDGER).unlink(),
    "no tape": lambda folder: (folder / TAPE).unlink(),
    "empty manifest": replaced(MANIFEST, lambda data: b""),
    "empty tape": replaced(TAPE, lambda data: b""),
    "empty ledger": replaced(LEDGER, lambda data: b""),
    "cut tape": replaced(TAPE, lambda data: data[:-1]),
    "longer tape": replaced(TAPE, lambda data: data + b"\0"),
    "cut ledger": replaced(LEDGER, lambda data: data[:-1]),
    "a line less": replaced(LEDGER, lambda data: data[: data[:-1].rindex(b"\n") + 1]),
    "an element": replaced(TAPE, lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "a rank": replaced(LEDGER, lambda data: data.replace(b'"rank":0', b'"rank":1', 1)),
    "an epoch": replaced(LEDGER, lambda data: data.replace(b'"epoch":1', b'"epoch":2', 1)),
    "a digest": replaced(LEDGER, lambda data: data.replace(b'sha256":"', b'sha256":"0', 1)),
    "spaces": replaced(LEDGER, lambda data: data.replace(b":", b": ", 1)),
    "not ASCII": replaced(LEDGER, lambda data: b"\xff\n" + data),
    "too large": sparse,
    "a pipe": a_pipe,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_refused(folder: Path, name: str) -> None:
    DAMAGES[name](folder)
    with pytest.raises(ConfigError) as refused:
        read_recording(folder)
    assert refused.value.exit_code == 2
    assert refused.value.diagnostics().isprintable()


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError):
        read_recording(tmp_path / "file")


@given(
    name=st.sampled_from([MANIFEST, LEDGER, TAPE]),
    at=st.integers(0, 8_000),
    junk=st.binary(max_size=4),
)
def test_any_damage_is_refused_or_harmless(
    good: Path, tmp_path_factory: pytest.TempPathFactory, name: str, at: int, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(good, folder)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:at] + junk + data[at + len(junk) :])
    with contextlib.suppress(ConfigError):
        recording = read_recording(folder)
        assert len(recording.entries) == len(recording.tape) == 19
    shutil.rmtree(folder)
