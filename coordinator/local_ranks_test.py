"""Everything of a run that must be gone afterwards is gone, however the run ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.fake_rank_process import fake_rank_launcher
from coordinator.interruption import Interruption, interruptible
from coordinator.local_ranks import LocalRanks
from coordinator.process_table import children, open_descriptors, process_state
from coordinator.processes import ExecLauncher, WorkerProcess
from errors import ConfigError, MisuseError, PeerError, TPError
from manifest.run_manifest import RunManifest, from_flags
from wire.recorder import Recorder


def manifest(**flags: str) -> RunManifest:
    """Deadlines that a healthy machine never meets, except for those that a test gives."""
    deadlines = {"handshake_ms": "60000", "close_ms": "60000"}
    deadlines |= {name: flags.pop(name) for name in list(flags) if name in deadlines}
    return from_flags(flags | {f"deadlines.{name}": value for name, value in deadlines.items()})


def script(text: str) -> ExecLauncher:
    return ExecLauncher((sys.executable, "-I", "-c", text), {})


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run's temporary folder. Nothing is left in it, nor of processes or descriptors."""
    # Paths of sockets must be short: relative, or not as deep as a test's own folder may be.
    monkeypatch.chdir(tmp_path)
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        descriptors, running = open_descriptors(), children()
        yield Path(folder)
        assert list(Path(folder).iterdir()) == []
        assert open_descriptors() == descriptors
        assert children() == running


def nobody() -> LocalRanks:
    return LocalRanks(manifest(ranks="1"), script(""))


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_ranks_connect_and_leave(temporary: Path, transport: str) -> None:
    with LocalRanks(manifest(ranks="2", transport=transport), fake_rank_launcher()) as ranks:
        assert ranks.address.startswith(f"{transport}:")
        accepted = ranks.connect(Recorder())
        assert sorted(ranks.pids) == [0, 1]
        # The doors are closed: nobody can come late, and a killed run leaves no file.
        assert list(temporary.iterdir()) == []
        for link in accepted.links:
            link.close()
        exits = ranks.stop(60_000)
    assert [(end.rank, end.status, end.killed) for end in exits] == [(0, 0, False), (1, 0, False)]
    assert ranks.exits == exits


def test_the_socket_is_private(temporary: Path) -> None:
    with LocalRanks(manifest(ranks="1"), None) as ranks:
        path = Path(ranks.address.removeprefix("unix:"))
        assert path.parent.parent == temporary
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o600


def test_left_without_a_word_workers_get_their_grace() -> None:
    ranks = LocalRanks(manifest(ranks="1", close_ms="300"), fake_rank_launcher())
    began = time.monotonic()
    with ranks:
        accepted = ranks.connect(Recorder())
    assert time.monotonic() - began >= 0.3
    assert [end.killed for end in ranks.exits] == [True]
    for link in accepted.links:
        link.close()


def test_after_a_failure_nobody_is_asked_to_leave() -> None:
    ranks = LocalRanks(manifest(ranks="2"), script("import time; time.sleep(600)"))
    with pytest.raises(ZeroDivisionError), ranks:
        raise ZeroDivisionError
    assert ranks.exits == []


def test_a_worker_that_crashes_at_its_start() -> None:
    crash = "import sys, time; sys.argv[-1] == '0' and sys.exit('no numpy'); time.sleep(600)"
    ranks = LocalRanks(manifest(ranks="2"), script(crash))
    with pytest.raises(PeerError) as failure, ranks:
        ranks.connect(Recorder())
    assert (failure.value.code, failure.value.rank) == ("protocol.closed", 0)
    assert "no numpy" in failure.value.message
    assert [end.rank for end in ranks.exits] == [0, 1]


def test_a_worker_that_never_comes() -> None:
    sleeping = script("import time; time.sleep(600)")
    ranks = LocalRanks(manifest(ranks="2", handshake_ms="300"), sleeping)
    with pytest.raises(PeerError) as failure, ranks:
        ranks.connect(Recorder())
    assert (failure.value.code, failure.value.rank) == ("deadline.handshake", 0)
    assert [(end.rank, end.killed) for end in ranks.exits] == [(0, True), (1, True)]


def test_external_workers_are_not_started(tmp_path: Path) -> None:
    """And strangers are counted, also when nobody else came."""
    address = "unix:s"
    given = manifest(ranks="1", listen=address, handshake_ms="300")
    ranks = LocalRanks(given, None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger, ranks:
        stranger.connect(address.removeprefix("unix:"))
        with pytest.raises(PeerError) as failure:
            ranks.connect(Recorder())
    assert failure.value.code == "deadline.handshake"
    assert (ranks.pids, ranks.exits, ranks.strangers) == ({}, [], 1)
    assert not (tmp_path / "s").exists()


def test_an_address_in_use(tmp_path: Path) -> None:
    """The second run is refused and takes nothing away from the first."""
    unix = manifest(ranks="1", listen="unix:s")
    with LocalRanks(unix, None), pytest.raises(ConfigError), LocalRanks(unix, None):
        pass
    with LocalRanks(manifest(ranks="1", transport="tcp"), None) as first:
        tcp = manifest(ranks="1", listen=first.address.removeprefix("tcp:"))
        with pytest.raises(ConfigError) as refused, LocalRanks(tcp, None):
            pass
    assert [problem.field for problem in refused.value.problems] == ["listen"]
    with LocalRanks(unix, None):
        assert (tmp_path / "s").exists()


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    given = manifest(ranks="1", listen="unix:s")
    with pytest.raises(ConfigError), LocalRanks(given, None):
        pass
    assert (tmp_path / "s").read_text() == "mine"


def test_a_temporary_folder_too_deep_for_a_socket(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one to change is TMPDIR, which is where the path comes from."""
    deep = temporary / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(ConfigError) as refused, nobody():
        pass
    assert [problem.field for problem in refused.value.problems] == ["TMPDIR"]
    deep.rmdir()


def test_no_temporary_folder(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "missing"))
    with pytest.raises(TPError) as failure, nobody():
        pass
    assert failure.value.code == "output.write"


def test_connect_belongs_into_the_block() -> None:
    with pytest.raises(MisuseError):
        nobody().connect(Recorder())


class InterruptedLauncher:
    """A signal arrives while the second process is being started."""

    def __init__(self) -> None:
        self.started: list[WorkerProcess] = []

    def start(self, rank: int, address: str) -> WorkerProcess:
        process = script("import time; time.sleep(600)").start(rank, address)
        self.started.append(process)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            # Many chances to be interrupted before the process could be noted.
            time.sleep(0.01)
        return process


def test_a_process_that_was_just_started_is_not_left_behind() -> None:
    launcher = InterruptedLauncher()
    ranks = LocalRanks(manifest(ranks="4"), launcher)
    with pytest.raises(Interruption), interruptible(), ranks:
        ranks.connect(Recorder())
    assert [process.rank for process in launcher.started] == [0, 1]
    assert [end.rank for end in ranks.exits] == [0, 1]
    assert [process_state(end.pid) for end in ranks.exits] == [None, None]


def test_an_interrupted_clean_up_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives when the block has been left and the workers have their grace."""
    ranks = LocalRanks(manifest(ranks="1"), fake_rank_launcher())
    stop, graces = ranks.stop, []

    def interrupted(grace_ms: int) -> object:
        graces.append(grace_ms)
        if grace_ms:
            os.kill(os.getpid(), signal.SIGINT)
        return stop(grace_ms)

    monkeypatch.setattr(ranks, "stop", interrupted)
    with pytest.raises(Interruption), interruptible(), ranks:
        links = ranks.connect(Recorder()).links
    assert graces == [60_000, 0]
    assert [end.killed for end in ranks.exits] == [True]
    for link in links:
        link.close()
