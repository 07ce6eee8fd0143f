"""`serve` over HTTP as a process: start, every route, drain, signals, and nothing left behind."""

from __future__ import annotations

import json
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.deadlines import WAITS
from coordinator.gates.http_mutants import any_key, no_drain
from coordinator.gates.http_serving import (
    ANSWER_S,
    DONE,
    SLOW_S,
    SLOW_WORKER,
    HttpServing,
    http_serving,
    planted,
    refused,
    starting,
)
from coordinator.process_table import process_state, wait_until
from tools.python.tiers import mostly_exhaustive


def finish_reason(events: list[object]) -> object:
    """Of a stream that came to its end."""
    assert events[-1] == DONE
    last = events[-2]
    assert isinstance(last, dict)
    return last["choices"][0]["finish_reason"]


def test_from_start_to_end() -> None:
    """With an idle connection, whom nobody waits for."""
    with http_serving() as service:
        for wait in WAITS:
            assert f"  {wait.name} " in service.log
        idle = service.connect()
        idle.connect()
        for path in ("/", "/livez", "/readyz", "/startupz", "/metrics", "/v1/models", "/v1/engine"):
            assert service.ask("GET", path)[0] == 200, path
        status, answer = service.complete(3)
        assert (status, answer["usage"]["completion_tokens"]) == (200, 3)
        chat = {"messages": [{"role": "user", "content": "Return"}], "max_tokens": 2}
        assert service.ask("POST", "/v1/chat/completions", chat)[0] == 200
        assert service.ask("POST", "/tokenize", {"prompt": "Return the"})[0] == 200
        assert service.ask("GET", "/v1/requests")[0] == 200
        assert finish_reason(service.stream(3).rest()) == "length"
        assert service.ask("GET", "/v1/engine/steps/0")[0] == 200
        ready = service.ready()
        assert (ready["ok"], ready["ranks_connected"], ready["world_size"]) == (True, 2, 2)
        started = service.ask("GET", "/startupz")[1]
        assert all(rank["bytes_loaded"] == rank["bytes_due"] > 0 for rank in started["ranks"])
        code, seconds = service.end()
        assert code == 0
        assert seconds < 1.0 + SLOW_S
        idle.close()


def test_a_running_stream_may_finish() -> None:
    """Meanwhile it is not ready, and takes nothing new."""
    with http_serving(worker_module=SLOW_WORKER) as service:
        stream = service.stream(100, stream_options={"include_usage": True})
        stream.next()
        service.process.send_signal(signal.SIGTERM)
        service.await_log("stopping")
        page = service.ready()
        assert (page["ok"], page["reason"]["code"]) == (False, "service.stopping")
        assert service.ask("GET", "/livez")[0] == 200
        status, answer = service.complete()
        assert (status, answer["error"]["code"]) == (503, "overload.stopping")
        events = stream.rest()
        assert events[-1] == DONE
        assert events[-2]["usage"]["completion_tokens"] == 100
        assert service.wait() == 0


@pytest.mark.exhaustive
def test_a_whole_answer_may_finish_too() -> None:
    with http_serving(worker_module=SLOW_WORKER) as service:
        connection = service.connect()
        sent = json.dumps({"prompt": [1], "max_tokens": 100, "ignore_eos": True})
        head = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", sent, head)
        assert wait_until(lambda: not service.is_idle())
        service.process.send_signal(signal.SIGTERM)
        answer = json.loads(connection.getresponse().read())
        assert answer["usage"]["completion_tokens"] == 100
        assert service.wait() == 0


@pytest.mark.parametrize("signals", [pytest.param(1, marks=pytest.mark.exhaustive), 2])
def test_what_does_not_finish_is_dropped(signals: int) -> None:
    """At the end of the drain, or at once with the second signal. No [DONE] for it."""
    drain_ms = "0" if signals == 1 else "600000"
    with http_serving(["--drain-ms", drain_ms], worker_module=SLOW_WORKER) as service:
        stream = service.stream(1000)
        stream.next()
        for _ in range(signals - 1):
            service.process.send_signal(signal.SIGINT)
            service.await_log("stopping")
        code, seconds = service.end(signal.SIGINT)
        assert code == 0
        assert seconds < 2.0 + SLOW_S
        assert DONE not in stream.rest()


@pytest.mark.parametrize(
    "number",
    mostly_exhaustive(
        [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], lambda number: number is signal.SIGTERM
    ),
)
def test_a_signal_while_it_loads(number: signal.Signals) -> None:
    with starting() as service:
        code, seconds = service.end(number)
        assert code == 0
        assert seconds < 2.0 + SLOW_S


@pytest.mark.exhaustive
def test_the_control_socket_beside_it() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "s"
        with (
            http_serving(["--control", f"unix:{path}"]) as service,
            socket.socket(socket.AF_UNIX) as client,
        ):
            client.settimeout(ANSWER_S)
            client.connect(str(path))
            file = client.makefile("rb")

            def hear() -> dict[str, object]:
                heard = json.loads(file.readline())
                assert isinstance(heard, dict)
                return heard

            given = {"prompt_token_ids": [5, 6, 7], "max_tokens": 2}
            submit = {"op": "submit", "tag": "", "parameters": given}
            client.sendall(json.dumps(submit).encode("ascii") + b"\n")
            events = [str(hear()["event"]) for _ in range(4)]
            assert events == ["accepted", "token", "token", "finished"]
            # One inbox: ids go on where the other front end has left off.
            assert service.complete()[0] == 200
            client.sendall(json.dumps(submit).encode("ascii") + b"\n")
            assert hear()["request_id"] == 2
            code, _ = service.end()
            assert code == 0
        assert not path.exists()


def test_its_workers_do_not_outlive_it() -> None:
    with http_serving() as service:
        pids = service.pids()
        service.process.kill()
        service.process.wait(ANSWER_S)
        assert wait_until(lambda: all(process_state(pid) is None for pid in pids), 5.0 + SLOW_S)


def test_the_key() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "key"
        path.write_text("s3cret\n")
        header = {"Authorization": "Bearer s3cret"}
        with http_serving(["--api-key-file", str(path)], header) as service:
            assert service.complete()[0] == 200
            stranger = HttpServing(service.process, {})
            stranger.port = service.port
            for asked in ("/v1/models", "/metrics", "/v1/engine", "/v1/requests", "/nowhere"):
                status, answer = stranger.ask("GET", asked)
                assert status == 401, asked
                assert answer["error"]["code"] == "authentication.missing", asked
            assert stranger.complete()[0] == 401
            for asked in ("/", "/livez", "/readyz", "/startupz"):
                assert stranger.ask("GET", asked)[0] == 200, asked
            service.end()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("mistake", "gate"), [(no_drain, test_a_running_stream_may_finish), (any_key, test_the_key)]
)
def test_a_planted_mistake_is_noticed(
    mistake: Callable[[], None], gate: Callable[[], None]
) -> None:
    with planted(mistake):
        gate()


def test_what_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("two words")
    # Of a server that runs, perhaps the one that has the port.
    trace = tmp_path / "trace"
    trace.write_text("its steps")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = {
            "a port that is taken": ["--port", port, "--trace", str(trace)],
            "a degree that can't be": ["--port", "0", "--tp", "3"],
            "no loopback": ["--host", "0.0.0.0"],
            "no loopback without a key": ["--host", "0.0.0.0", "--allow-remote"],
            "a file without a key": ["--port", "0", "--api-key-file", str(tmp_path / "key")],
            "no such file": ["--port", "0", "--api-key-file", str(tmp_path / "absent")],
            "too many connections": ["--port", "0", "--max-connections", "65536"],
        }
        for name, options in cases.items():
            result = refused(tmp_path, *options)
            assert result.returncode == 2, name
            assert "config." in result.stderr, name
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["key", "trace"]
    assert trace.read_text() == "its steps"


@pytest.mark.exhaustive
def test_remote_with_a_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret")
    options = ["--host", "0.0.0.0", "--allow-remote", "--api-key-file", str(tmp_path / "key")]
    began = time.monotonic()
    with http_serving(options, {"Authorization": "Bearer s3cret"}) as service:
        assert service.ready()["ok"]
        assert service.complete()[0] == 200
        service.end()
    assert time.monotonic() - began < ANSWER_S
