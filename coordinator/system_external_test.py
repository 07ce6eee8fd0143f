"""Workers that someone else starts, and everything else that may connect to a coordinator."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.built_program import (
    Finished,
    coordinator,
    finish,
    left_behind,
    run_to_end,
    started,
    worker,
)
from coordinator.process_table import SLACK_S, wait_until
from coordinator.run_files import OBSERVATIONS, OUTPUT
from tools.python.tiers import mostly_exhaustive
from wire.canonical import decode_canonical
from wire.limits import HEADER, MAGIC, VERSION

SMALL = ("--batch", "1", "--sequence", "2", "--json")
LISTEN = {"tcp": "127.0.0.1:0", "unix": "unix:tmp/s"}
# Without assertions, as a careless user may set it.
OPTIMISED = {"PYTHONOPTIMIZE": "1"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a program is called; not as deep as a test's own folder, because of sockets' paths."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


class Waiting:
    """A coordinator that waits for external workers."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"workers at (\S+)$", said)
        assert found is not None, said
        self.process = process
        self.folder = folder
        self.address = found[1]

    def stranger(self, said: bytes) -> socket.socket:
        """A connection that says something and stays."""
        if self.address.startswith("unix:"):
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            peer.connect(self.address.removeprefix("unix:"))
        else:
            peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            host, _, port = self.address.removeprefix("tcp:").rpartition(":")
            peer.connect((host, int(port)))
        peer.settimeout(SLACK_S)
        peer.sendall(said)
        return peer

    def join(self, ranks: Sequence[int], extra: dict[str, str] | None = None) -> list[Finished]:
        """Workers of these ranks, run to their ends."""
        with ExitStack() as stack:
            workers = [
                stack.enter_context(started(worker(self.address, rank), self.folder, extra))
                for rank in ranks
            ]
            return [finish(process) for process in workers]

    def document(self, code: int) -> dict[str, Any]:
        """The coordinator's one JSON object, once it has ended with this code."""
        finished = finish(self.process)
        assert finished.code == code, finished
        document: dict[str, Any] = json.loads(finished.out)
        return document


@contextmanager
def waiting(
    folder: Path, transport: str, *flags: str, extra: dict[str, str] | None = None
) -> Iterator[Waiting]:
    listen = ("--listen", LISTEN[transport], "--external-workers")
    with started(coordinator("run", *SMALL, *listen, *flags), folder, extra) as process:
        yield Waiting(process, folder)
    assert left_behind(folder) == []


@pytest.fixture(autouse=True)
def _called_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of sockets are short when they are relative."""
    monkeypatch.chdir(folder)


@pytest.mark.parametrize(
    "transport", mostly_exhaustive(LISTEN, lambda transport: transport == "tcp")
)
def test_workers_join_and_leave(transport: str, folder: Path) -> None:
    with waiting(folder, transport, "--ranks", "2") as run:
        ends = run.join([1, 0])
        document = run.document(0)
    assert [(end.code, end.out, end.err) for end in ends] == [(0, "", "")] * 2
    assert (document["ok"], document["strangers"]) == (True, 0)
    own = run_to_end(coordinator("run", *SMALL, "--ranks", "2", "--out", "own"), folder)
    assert json.loads(own.out)["output_sha256"] == document["output_sha256"]


@pytest.mark.exhaustive
def test_without_assertions(folder: Path) -> None:
    """The same under `python -O`, on both sides: a run, and a run that is refused."""
    with waiting(folder, "unix", "--ranks", "2", extra=OPTIMISED) as run:
        with run.stranger(b"GET / HTTP/1.1\r\n\r\n") as stranger:
            assert stranger.recv(1) == b""
        ends = run.join([0, 1], OPTIMISED)
        document = run.document(0)
    assert [end.code for end in ends] == [0, 0]
    assert (document["ok"], document["strangers"]) == (True, 1)
    with waiting(folder, "unix", "--ranks", "1", extra=OPTIMISED) as run:
        (end,) = run.join([3], OPTIMISED)
        document = run.document(3)
    assert end.code == 3
    assert document["error"]["code"] == "contract.metadata"


@pytest.mark.exhaustive
def test_a_worker_may_be_there_before_its_coordinator(folder: Path) -> None:
    (folder / "tmp").mkdir()
    with started(worker("unix:tmp/s", 0), folder) as early:
        # Long enough for it to have tried in vain, on most machines.
        time.sleep(1.0)
        with waiting(folder, "unix", "--ranks", "1") as run:
            assert run.document(0)["ok"] is True
        assert finish(early).code == 0


REFUSED = {
    "two with one rank": ([0, 0], 0),
    "rank out of range": ([2], 2),
}


@pytest.mark.parametrize(("ranks", "named"), REFUSED.values(), ids=REFUSED)
def test_workers_that_do_not_fit(ranks: list[int], named: int, folder: Path) -> None:
    with waiting(folder, "tcp", "--ranks", "2") as run:
        ends = run.join(ranks)
        document = run.document(3)
    assert document["error"] == {
        "code": "contract.metadata",
        "rank": named,
        "phase": "hello",
        "errno": None,
        "errno_name": None,
    }
    for rank, end in zip(ranks, ends, strict=True):
        assert (end.code, end.out) == (3, "")
        assert end.err.startswith(f"worker of rank {rank}: protocol.closed: ")
        assert end.err.count("\n") == 1
    assert not (folder / "out" / OUTPUT).exists()


def test_a_worker_that_never_comes(folder: Path) -> None:
    with waiting(folder, "unix", "--ranks", "2", "--handshake-ms", "2000") as run:
        (end,) = run.join([1])
        document = run.document(3)
    assert document["error"] == {
        "code": "deadline.handshake",
        "rank": 0,
        "phase": "hello",
        "errno": None,
        "errno_name": None,
    }
    assert (end.code, end.out) == (3, "")


def test_strangers_of_every_kind(folder: Path) -> None:
    """They come first, several stay until the end, and the run does not care."""
    too_much = HEADER.pack(MAGIC, VERSION, 1, 0, 0, 0, 0xFFFF_FFFF, 0xFFFF_FFFF, 0)
    other_version = HEADER.pack(MAGIC, VERSION + 1, 1, 0, 0, 0, 0, 0, 0)
    refused = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(range(250, 0, -1)), too_much]
    refused.append(other_version)
    with waiting(folder, "tcp", "--ranks", "1") as run, ExitStack() as stack:
        for said in refused:
            assert is_closed(stack.enter_context(run.stranger(said)))
        for said in (b"", b"R", too_much[:30]):
            stack.enter_context(run.stranger(said))
        (end,) = run.join([0])
        document = run.document(0)
    assert (end.code, document["ok"], document["strangers"]) == (0, True, 7)
    first = (folder / "out" / OBSERVATIONS).read_bytes().splitlines()[0]
    assert decode_canonical(first)["strangers"] == 7


def is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "transport", mostly_exhaustive(LISTEN, lambda transport: transport == "tcp")
)
def test_an_address_in_use(transport: str, folder: Path) -> None:
    """The second coordinator is refused; the first goes on."""
    with waiting(folder, transport, "--ranks", "1") as run:
        address = run.address.removeprefix("tcp:")
        flags = ("--ranks", "1", "--listen", address, "--external-workers", "--out", "second")
        second = run_to_end(coordinator("run", *SMALL, *flags), folder)
        assert second.code == 2
        assert json.loads(second.out)["error"]["code"] == "config.invalid"
        assert address in second.err
        assert second.err.count("\n") == 1
        (end,) = run.join([0])
        assert (end.code, run.document(0)["ok"]) == (0, True)


def test_nobody_comes_late(folder: Path) -> None:
    """Once all ranks are there the address is free again, while the run goes on."""
    flags = ("--ranks", "1", "--listen", "unix:tmp/s")
    fault = ("--fault", "delay", "--fault-rank", "0", "--fault-phase", "result")
    command = coordinator("run", *SMALL, *flags, *fault, "--phase-ms", "60000")
    with started(command, folder) as process:
        assert wait_until(lambda: (folder / "tmp" / "s").exists())
        assert wait_until(lambda: not (folder / "tmp" / "s").exists())
        late = run_to_end(worker("unix:tmp/s", 0, "--connect-ms", "200"), folder)
        assert process.poll() is None
    assert late.code == 3
    assert late.err.startswith("worker of rank 0: deadline.handshake: ")
