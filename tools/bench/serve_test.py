"""`bench serve` against the real server over real ranks, from the command line to its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from io import StringIO
from pathlib import Path

import pytest

import worker.main
from coordinator.arguments_serve import read_serve
from coordinator.gates import serve_process
from coordinator.gates.live import ENVIRONMENT, MACHINE, REAL_WORKER, Worker
from coordinator.model_run import ModelBindings
from coordinator.options import CallContext
from errors import PeerError, TPError
from tools.bench.main import main
from tools.bench.serve import LOADS, run_loads
from tools.bench.serve_client import DONE, Endpoint
from tools.bench.serve_fake import ASKING
from tools.bench.serve_overhead import Way
from tools.bench.serve_server import Program, own_server
from tools.bench.serve_turns import BATCH, TURN_TOKENS, overhead

CHECKPOINT = "testdata/tiny-qwen35"
ENV = {"PATH": os.environ.get("PATH", ""), **ENVIRONMENT}
ARGUMENTS = ("--checkpoint", CHECKPOINT, "--tp", "2", "--max-batch", str(BATCH))


def program(*more: str) -> Program:
    head = (sys.executable, "-m", serve_process.__name__, worker.main.__name__, "--")
    return Program((*head, *more), ENV)


def test_one_load() -> None:
    with own_server(program(), ARGUMENTS) as started:
        loaded = asyncio.run(run_loads(Endpoint.of(started.url), ASKING, ["closed"]))
        (report,) = loaded.reports
        assert (report.errors, report.probe_end, report.left_over) == (0, DONE, 0)
        assert report.completion_tokens == 4 * report.ends[DONE]


@pytest.mark.exhaustive
def test_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with own_server(program(), ARGUMENTS) as started:
        loaded = asyncio.run(run_loads(Endpoint.of(started.url), ASKING, list(LOADS)))
        for report in loaded.reports:
            assert (report.errors, report.probe_end, report.left_over) == (0, DONE, 0)
            assert report.completion_tokens == 4 * report.ends[DONE]
        out = tmp_path / "found.json"
        argv = ["serve", "--url", started.url, "--loads", "closed", "--requests", "2"]
        assert main([*argv, "--json", str(out)]) == 0
        assert json.loads(out.read_text())["loads"][0]["ends"] == {DONE: 2}
        assert "| closed | 2 | 2 | 0 | 0 |" in capsys.readouterr().out


def test_turns_on_one_engine() -> None:
    options = read_serve(["--port", "0", *ARGUMENTS], CallContext(Path()))
    bindings = ModelBindings(REAL_WORKER.launcher, lambda: MACHINE)
    found = overhead(options, bindings, ASKING, 1, StringIO())
    (turns,) = found.rounds
    for way in Way:
        turn = turns[way]
        assert len(turn.pace.periods) > TURN_TOKENS // 2
        assert 0 < turn.pace.step < turn.pace.period
        assert turn.engine_us > 0
    # Without HTTP the loop sleeps, and there are no clients.
    assert turns[Way.ENGINE].loop_us < turns[Way.HTTP].loop_us
    assert (turns[Way.ENGINE].clients_us, turns[Way.HTTP].clients_us > 0) == (0, True)


def test_a_server_whose_ranks_do_not_start_ends_the_turns() -> None:
    options = read_serve(["--port", "0", *ARGUMENTS], CallContext(Path()))
    broken = ModelBindings(Worker("no_such_module").launcher, lambda: MACHINE)
    with pytest.raises(PeerError):
        overhead(options, broken, ASKING, 1, StringIO())


def test_a_server_that_does_not_start() -> None:
    with pytest.raises(TPError) as caught, own_server(program(), ("--tp", "3")):
        pass
    assert caught.value.code == "process.start"


def test_a_server_that_ends_badly() -> None:
    with pytest.raises(TPError) as caught, own_server(program(), ARGUMENTS) as started:
        os.kill(started.pid, signal.SIGKILL)
    assert caught.value.code == "process.exit"
