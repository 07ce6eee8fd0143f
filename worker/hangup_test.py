"""A hang-up bounds the life of a process that computes; nothing else does."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from errors import TPError
from worker.hangup import EXIT_CODE, GRACE_S, HangupWatch

# Long enough to see that a process has not ended, short against every deadline.
A_WHILE_S = 0.5
SLACK_S = 30.0

# Says when the watch is there, then computes for ever or as long as it is told to.
COMPUTING = """
import socket, sys, time
from worker.hangup import HangupWatch

connection = socket.socket(fileno=int(sys.argv[1]))
with HangupWatch(connection.fileno(), grace_s=float(sys.argv[2])):
    connection.sendall(b"x")
    until = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < until:
        sum(range(1000))
"""


@contextmanager
def computing(family: int, grace_s: float, for_s: float) -> Iterator[tuple[socket.socket, Popen]]:
    """A process under watch, and the other end of its connection."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0) if family == socket.AF_INET else "")
    listener.listen()
    near = socket.socket(family, socket.SOCK_STREAM)
    near.connect(listener.getsockname())
    far, _ = listener.accept()
    listener.close()
    process = subprocess.Popen(
        [sys.executable, "-c", COMPUTING, str(near.fileno()), str(grace_s), str(for_s)],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"},
        pass_fds=[near.fileno()],
        stderr=subprocess.PIPE,
        text=True,
    )
    near.close()
    far.settimeout(SLACK_S)
    with process, far:
        try:
            assert far.recv(1) == b"x"
            yield far, process
        finally:
            process.kill()


Popen = subprocess.Popen[str]
FAMILIES = [socket.AF_INET, socket.AF_UNIX]


def test_the_grace_leaves_time_to_reap_within_five_seconds() -> None:
    """docs/spec/session.md S2 and the promise that no worker outlives its coordinator by 5 s."""
    assert GRACE_S <= 4.0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_computing_process_is_ended(family: int) -> None:
    with computing(family, grace_s=0.2, for_s=600.0) as (far, process):
        time.sleep(A_WHILE_S)
        assert process.poll() is None
        far.close()
        _, said = process.communicate(timeout=SLACK_S)
    assert process.returncode == EXIT_CODE
    assert said.startswith("worker: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_half_a_hang_up_is_one(family: int) -> None:
    """The other side will never speak again; that it still could listen is of no use."""
    with computing(family, grace_s=0.2, for_s=600.0) as (far, process):
        far.shutdown(socket.SHUT_WR)
        assert process.wait(SLACK_S) == EXIT_CODE


def test_who_ends_within_the_grace_ends_as_it_likes() -> None:
    with computing(socket.AF_UNIX, grace_s=SLACK_S, for_s=1.0) as (far, process):
        far.close()
        _, said = process.communicate(timeout=SLACK_S)
    assert (process.returncode, said) == (0, "")


def test_data_is_no_hang_up() -> None:
    with computing(socket.AF_UNIX, grace_s=0.0, for_s=A_WHILE_S) as (far, process):
        far.sendall(b"unread")
        _, said = process.communicate(timeout=SLACK_S)
    assert (process.returncode, said) == (0, "")


def test_waiting_costs_nothing_and_ends_with_the_block() -> None:
    """Data that nobody reads must not wake the watch again and again."""
    near, far = socket.socketpair()
    far.sendall(b"unread")
    assert select.select([near], [], [], 0)[0]
    before = time.process_time()
    with HangupWatch(near.fileno(), grace_s=0.0):
        time.sleep(A_WHILE_S)
        assert "hangup" in names()
    assert time.process_time() - before < A_WHILE_S / 2
    deadline = time.monotonic() + SLACK_S
    while "hangup" in names() and time.monotonic() < deadline:
        time.sleep(0.01)
    # The watch is over, so a hang-up now ends nobody: this process is there to say so.
    far.close()
    time.sleep(A_WHILE_S)
    assert "hangup" not in names()
    near.close()


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_no_thread_left_is_a_failure_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under a limit on processes; a worker that is not watched must not start."""

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    near, far = socket.socketpair()
    with near, far, pytest.raises(TPError) as failure, HangupWatch(near.fileno()):
        pytest.fail("entered without a watch")
    assert failure.value.code == "process.resources"
