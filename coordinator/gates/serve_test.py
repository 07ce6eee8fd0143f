"""`serve` and `state` as processes: start, clients, signals, failures, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from coordinator.deadlines import WAITS
from coordinator.gates import http_mutants
from coordinator.gates.http_serving import ANSWER_S, SLOW_S, command, environment, planted
from coordinator.gates.live import gate_model
from coordinator.process_table import process_state, wait_until

MEMORY: Final = ("--rank-memory-bytes", str(140 << 20), "--max-step-tokens", "8")
# Where nothing depends on the number of ranks.
ONE_RANK: Final = ("--tp", "1")
PROMPT: Final = [5, 6, 7]


class Client:
    """A connection to the control socket that blocks. Closed at the latest after its test."""

    opened: ClassVar[list[Client]] = []

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_S)
        self._socket.connect(str(path))
        self._file = self._socket.makefile("rb")
        self.opened.append(self)

    def say(self, **command: object) -> None:
        self._socket.sendall(json.dumps(command).encode("ascii") + b"\n")

    def hear(self) -> Any:
        """The next event; None at the end."""
        line = self._file.readline()
        return json.loads(line) if line else None

    def submit(self, max_tokens: int) -> int:
        given = {"prompt_token_ids": PROMPT, "max_tokens": max_tokens}
        self.say(op="submit", tag="", parameters=given)
        return int(self.hear()["request_id"])

    def rest(self) -> list[Any]:
        """The events to the end of the stream."""
        events = []
        while (event := self.hear()) is not None:
            events.append(event)
        return events

    def state(self) -> Any:
        self.say(op="state")
        return self.hear()["state"]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Serving:
    """A running service. log: what it said so far on standard error."""

    def __init__(self, process: subprocess.Popen[str], socket_path: Path) -> None:
        self.process = process
        self.path = socket_path
        self.log = ""

    def await_log(self, text: str) -> None:
        stderr = self.process.stderr
        assert stderr is not None
        while text not in self.log:
            line = stderr.readline()
            assert line, f"ended without {text!r}: {self.log}"
            self.log += line

    def pids(self) -> list[int]:
        client = Client(self.path)
        found = [rank["pid"] for rank in client.state()["ranks"]]
        client.close()
        return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Exit code and seconds from the signal to the end."""
        began = time.monotonic()
        self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=ANSWER_S)
        self.log += rest
        return self.process.returncode, time.monotonic() - began


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gate_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def _clients_are_closed() -> Iterator[None]:
    yield
    for client in Client.opened:
        client.close()
    Client.opened.clear()


@pytest.fixture
def home() -> Iterator[Path]:
    """Of one service; not as deep as a test's own folder, because of the paths of sockets."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextmanager
def serving(folder: Path, home: Path, options: Sequence[str] = ()) -> Iterator[Serving]:
    """A service that is ready. Afterwards neither it nor anything it made may be left."""
    path = home / "s"
    temporary = home / "t"
    temporary.mkdir()
    arguments = ("serve", "--control", f"unix:{path}", "--checkpoint", str(folder), *MEMORY)
    process = subprocess.Popen(
        command(*arguments, *options),
        env=environment(temporary),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    service = Serving(process, path)
    try:
        service.await_log("serving at")
        pids = service.pids()
        yield service
        assert process.poll() is not None
        assert wait_until(lambda: all(process_state(pid) is None for pid in pids))
        assert not path.exists()
        assert list(temporary.iterdir()) == []
    finally:
        process.kill()
        process.communicate()


def state_page(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    arguments = ("state", "--control", f"unix:{path}", *options)
    return subprocess.run(
        command(*arguments),
        env=environment(path.parent),
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )


def test_a_service_from_start_to_end(folder: Path, home: Path) -> None:
    """With an idle client attached, whom nobody waits for."""
    with serving(folder, home) as service:
        for wait in WAITS:
            assert f"  {wait.name} " in service.log
        client = Client(service.path)
        request_id = client.submit(3)
        events = [client.hear() for _ in range(4)]
        assert [event["event"] for event in events] == ["token"] * 3 + ["finished"]
        assert events[-1]["request_id"] == request_id
        shown = json.loads(state_page(service.path, "--json").stdout)
        assert shown == client.state()
        digests = {rank["state_digest"] for rank in shown["ranks"]}
        assert digests == {shown["state_digest"]}
        assert (shown["steps"], shown["slots"], shown["requests"]) == (4, [None] * 8, [])
        page = state_page(service.path)
        assert page.stdout.startswith("condition  serving\n")
        assert page.returncode == 0
        code, seconds = service.end()
        assert code == 0
        assert seconds < 1.0 + SLOW_S
        assert client.rest() == []
        client.close()


def test_a_running_request_may_finish(folder: Path, home: Path) -> None:
    with serving(folder, home, ONE_RANK) as service:
        client, late = Client(service.path), Client(service.path)
        client.submit(200)
        assert client.hear()["event"] == "token"
        service.process.send_signal(signal.SIGTERM)
        service.await_log("stopping")
        late.say(op="submit", tag="late", parameters={"prompt_token_ids": [1], "max_tokens": 1})
        assert late.hear()["error"]["code"] == "overload.stopping"
        events = client.rest()
        assert [event["event"] for event in events] == ["token"] * 199 + ["finished"]
        assert events[-1]["outcome"] == "length"
        assert service.process.wait(ANSWER_S) == 0
        client.close()
        late.close()


@pytest.mark.exhaustive
def test_what_does_not_finish_in_time_is_dropped(folder: Path, home: Path) -> None:
    with serving(folder, home, [*ONE_RANK, "--drain-ms", "0"]) as service:
        client = Client(service.path)
        client.submit(4000)
        assert client.hear()["event"] == "token"
        code, _ = service.end()
        assert code == 0
        assert client.rest()[-1]["outcome"] == "dropped"
        client.close()


@pytest.mark.exhaustive
def test_a_second_signal_ends_the_wait(folder: Path, home: Path) -> None:
    with serving(folder, home, [*ONE_RANK, "--drain-ms", "600000"]) as service:
        client = Client(service.path)
        client.submit(8000)
        assert client.hear()["event"] == "token"
        service.process.send_signal(signal.SIGINT)
        service.await_log("stopping")
        code, _ = service.end(signal.SIGINT)
        assert code == 0
        assert client.rest()[-1]["outcome"] == "dropped"
        client.close()


def test_a_rank_that_dies_while_idle(folder: Path, home: Path) -> None:
    with serving(folder, home) as service:
        began = time.monotonic()
        os.kill(service.pids()[1], signal.SIGKILL)
        service.await_log("failed between steps")
        assert time.monotonic() - began < 1.0 + SLOW_S
        client = Client(service.path)
        failure = client.state()["failure"]
        assert (failure["step"], failure["cause"]["rank"]) == (None, 1)
        assert failure["cause"]["code"] == "protocol.closed"
        client.submit(3)
        end = client.hear()
        assert (end["outcome"], end["error"]["code"]) == ("failed", "group.poisoned")
        page = state_page(service.path)
        assert page.stdout.startswith("condition  failed between steps: rank 1")
        code, _ = service.end()
        assert code == 3
        client.close()


@pytest.mark.exhaustive
def test_a_stopped_rank_does_not_hold_up_the_end(folder: Path, home: Path) -> None:
    """It hangs in a step whose deadline is minutes away; a signal ends the service all the same."""
    with serving(folder, home, [*ONE_RANK, "--drain-ms", "0"]) as service:
        client = Client(service.path)
        client.submit(8000)
        assert client.hear()["event"] == "token"
        os.kill(service.pids()[0], signal.SIGSTOP)
        time.sleep(0.2)
        code, seconds = service.end()
        assert code == 3
        # release, last words, kill.
        assert seconds < 10.5 + SLOW_S
        end = client.rest()[-1]
        assert (end["outcome"], end["error"]["rank"]) == ("failed", 0)
        client.close()


@pytest.mark.exhaustive
def test_its_workers_do_not_outlive_it(folder: Path, home: Path) -> None:
    with serving(folder, home) as service:
        pids = service.pids()
        service.process.kill()
        service.process.wait(ANSWER_S)
        assert wait_until(lambda: all(process_state(pid) is None for pid in pids), 5.0 + SLOW_S)
        # Nobody was there to remove what only the service knows.
        service.path.unlink()
        for entry in (home / "t").iterdir():
            entry.rmdir()


def test_what_is_refused_before_anything_starts(folder: Path, home: Path) -> None:
    taken = home / "taken"
    taken.write_text("")
    for control in (f"unix:{taken}", "127.0.0.1:7400", f"unix:{home}/{'x' * 200}"):
        arguments = ("serve", "--control", control, "--checkpoint", str(folder), *MEMORY)
        refused = subprocess.run(
            command(*arguments, module="no.such.worker"),
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
        assert refused.returncode == 2
        assert "config.invalid" in refused.stderr


def test_nobody_answers(home: Path) -> None:
    absent = state_page(home / "absent", "--timeout-ms", "300")
    assert absent.returncode == 3
    assert "deadline.handshake" in absent.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("mistake", "gate"),
    [
        (http_mutants.ends_well, test_a_rank_that_dies_while_idle),
        (http_mutants.stops_at_once, test_a_running_request_may_finish),
    ],
)
def test_a_planted_mistake_is_noticed(
    folder: Path,
    home: Path,
    mistake: Callable[[], None],
    gate: Callable[[Path, Path], None],
) -> None:
    with planted(mistake):
        gate(folder, home)
