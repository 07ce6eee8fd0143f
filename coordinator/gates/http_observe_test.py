"""What a real server shows of itself: steps, traces that open, stacks, and the last flight."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from coordinator.gates.http_serving import DONE, SLOW_WORKER, http_serving


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_service_that_ends_well_leaves_whole_traces(tmp_path: Path) -> None:
    trace, chrome = tmp_path / "t.jsonl", tmp_path / "c.json"
    with http_serving(["--trace", str(trace), "--chrome-trace", str(chrome)]) as service:
        assert service.complete(12)[0] == 200
        page = service.ask("GET", "/v1/engine")[1]
        steps = [step["step"] for step in page["steps"]]
        assert steps == list(range(len(steps)))
        assert page["tokens_total"] == 12
        assert all(rank["rss_bytes"] > rank["weights_bytes"] > 0 for rank in page["ranks"])
        shown = service.ask("GET", f"/v1/engine/steps/{steps[-2]}")[1]
        for lane in ("rank 0", "rank 1"):
            own = [span for span in shown["spans"] if span["lane"] == lane]
            assert sum(span["duration_us"] for span in own) == shown["duration_us"]
        sums = [frame for frame in shown["frames"] if frame["kind"] == "REDUCTION"]
        assert sums
        assert all(frame["statistics"]["nonfinite"] == 0 for frame in sums)
        service.process.send_signal(signal.SIGUSR1)
        service.await_log("most recent call first")
        # The signal that shows stacks ends nothing.
        assert service.complete(3)[0] == 200
        total = service.ask("GET", "/v1/engine")[1]["steps"][-1]["step"] + 1
        assert service.end()[0] == 0
    assert [line["step"] for line in lines_of(trace)] == list(range(total))
    events = json.loads(chrome.read_text("ascii"))
    assert sum(event.get("cat") == "step" for event in events) == 3 * total


def test_a_killed_rank_leaves_the_flight_and_a_killed_service_a_trace_that_opens(
    tmp_path: Path,
) -> None:
    chrome, dump = tmp_path / "c.json", tmp_path / "dump"
    options = ["--chrome-trace", str(chrome), "--dump-dir", str(dump), "--linger-ms", "60000"]
    with http_serving(options, worker_module=SLOW_WORKER) as service:
        stream = service.stream(400)
        stream.next()
        os.kill(service.pids()[1], signal.SIGKILL)
        assert DONE not in stream.rest()
        service.await_log("the flight recorder is in")
        failure = service.ask("GET", "/v1/engine")[1]["failure"]
        assert failure["rank"] == 1
        metrics = service.ask("GET", "/metrics")[1]
        assert f'rankproof_failures_total{{code="{failure["code"]}",rank="1"}} 1.0' in metrics
        service.process.kill()
        service.process.wait()
    lines = lines_of(dump / "flight-1.jsonl")
    assert (lines[1]["code"], lines[1]["step"]) == (failure["code"], failure["step"])
    frames = [line for line in lines if line["type"] == "frame"]
    last = frames[-1]
    assert (last["step"], last["rank"]) == (failure["step"], 1)
    assert (last["error"], last["phase"]) == (failure["code"], failure["phase"])
    # Its end is missing, and nothing else.
    text = chrome.read_text("ascii")
    assert json.loads(text + "]")
