"""`bench serve` against the real server over real ranks, from the command line to its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

import worker.main
from coordinator.gates import serve_process
from coordinator.gates.live import ENVIRONMENT, MACHINE, REAL_WORKER
from coordinator.model_run import ModelBindings
from errors import TPError
from manifest.run_manifest import from_flags
from tools.bench.main import main
from tools.bench.serve import BATCH, LOADS, overhead, run_loads
from tools.bench.serve_client import DONE, Endpoint
from tools.bench.serve_fake import ASKING
from tools.bench.serve_server import Program, own_server

CHECKPOINT = "testdata/tiny-qwen35"
ENV = {"PATH": os.environ.get("PATH", ""), **ENVIRONMENT}
ARGUMENTS = ("--checkpoint", CHECKPOINT, "--tp", "2", "--max-batch", str(BATCH))


def program(*more: str) -> Program:
    head = (sys.executable, "-m", serve_process.__name__, worker.main.__name__, "--")
    return Program((*head, *more), ENV)


def test_loads_and_overhead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with own_server(program(), ARGUMENTS) as started:
        loaded = asyncio.run(run_loads(Endpoint.of(started.url), ASKING, list(LOADS)))
        for report in loaded.reports:
            assert (report.errors, report.probe_end, report.left_over) == (0, DONE, 0)
            assert report.completion_tokens == 4 * report.ends[DONE]
        manifest = from_flags(
            {"program": "qwen35/sharded", "ranks": "2", "model.checkpoint": CHECKPOINT}
        )
        bindings = ModelBindings(REAL_WORKER.launcher, lambda: MACHINE)
        found = overhead(started, None, manifest, bindings, ASKING, waves=1)
        (turn,) = found.turns
        for wave in (turn.http, turn.observed, turn.bare):
            assert len(wave.paces.periods) > 20
            assert 0 < wave.paces.between < 1
            assert wave.processor_ms > 0
        out = tmp_path / "found.json"
        argv = ["serve", "--url", started.url, "--loads", "closed", "--requests", "2"]
        assert main([*argv, "--json", str(out)]) == 0
        assert json.loads(out.read_text())["loads"][0]["ends"] == {DONE: 2}
        assert "| closed | 2 | 2 | 0 | 0 |" in capsys.readouterr().out


def test_a_server_that_does_not_start() -> None:
    with pytest.raises(TPError) as caught, own_server(program(), ("--tp", "3")):
        pass
    assert caught.value.code == "process.start"


def test_a_server_that_ends_badly() -> None:
    with pytest.raises(TPError) as caught, own_server(program(), ARGUMENTS) as started:
        os.kill(started.pid, signal.SIGKILL)
    assert caught.value.code == "process.exit"
