"""The table of waits is what the code waits, what the flags say, and what the document shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import coordinator.accept
import coordinator.main
import coordinator.model_run
import coordinator.processes
import coordinator.rank_watch
import coordinator.service
import coordinator.serving.body_limit
import coordinator.serving.http_limits
import coordinator.serving.restarts
import worker.hangup
import worker.main
from coordinator.arguments_serve import read_serve, serve_parser
from coordinator.arguments_state import read_state, state_parser
from coordinator.command_serve import settings_ms
from coordinator.deadlines import FIXED, WAITS, Wait, default_ms, render_deadlines
from coordinator.options import CallContext
from coordinator.serving.api_options import ApiOptions

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "deadlines.md"
CONTEXT = CallContext(Path("/call"), model=Path("/model"))
SOCKET = ["--control", "unix:s"]
# With both ways in, every flag has something to set.
BOTH = [*SOCKET, "--port", "0"]
# Where the waits without a flag are.
CONSTANTS_MS = {
    "kill": coordinator.processes.KILL_MS,
    "last words": coordinator.model_run.LAST_WORDS_MS,
    "gone rank": coordinator.rank_watch.GRACE_MS,
    "undue read": coordinator.rank_watch.UNDUE_READ_MS,
    "accept pause": coordinator.service.ACCEPT_PAUSE_MS,
    "liveness": coordinator.accept.LIVENESS_MS,
    "restart": coordinator.serving.restarts.FIRST_DELAY_MS,
    "keep alive": coordinator.serving.http_limits.KEEP_ALIVE_MS,
    "stall": coordinator.serving.http_limits.STALL_MS,
    "template": ApiOptions().template_ms,
    "discard": coordinator.serving.body_limit.DISCARD_MS,
    "worker connect": coordinator.main.CONNECT_MS,
    "worker idle": worker.main.IDLE_MS,
    "worker send": worker.main.SEND_MS,
    "worker hang-up": 1000 * worker.hangup.GRACE_S,
}
# The table itself is where these are read from.
FROM_THE_TABLE = {"release", "flush", "traces"}


def test_the_document_shows_the_table() -> None:
    rows = [
        [cell.strip() for cell in line.strip("| \n").split("|")]
        for line in DOCUMENT.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| wait")
    ]
    flags = {wait.name: "" if wait.flag == FIXED else f"`{wait.flag}`" for wait in WAITS}
    expected = [[w.name, str(w.default_ms), flags[w.name], w.bounds] for w in WAITS]
    assert rows == expected


def test_every_wait_is_somewhere() -> None:
    settable = {wait.name for wait in WAITS if wait.flag != FIXED}
    assert settable | set(CONSTANTS_MS) | FROM_THE_TABLE == {wait.name for wait in WAITS}
    assert len({wait.name for wait in WAITS}) == len(WAITS)


@pytest.mark.parametrize("name", CONSTANTS_MS)
def test_what_the_code_waits(name: str) -> None:
    assert default_ms(name) == CONSTANTS_MS[name]


def test_the_defaults_of_serve() -> None:
    options = read_serve(BOTH, CONTEXT)
    for name, value in settings_ms(options).items():
        assert value == default_ms(name), name
    assert read_state(SOCKET, CONTEXT).timeout_ms == default_ms("state")


@pytest.mark.parametrize("wait", [w for w in WAITS if w.flag != FIXED], ids=lambda w: w.name)
def test_every_flag_sets_its_wait(wait: Wait) -> None:
    if wait.name == "state":
        assert read_state([*SOCKET, "--timeout-ms", "77"], CONTEXT).timeout_ms == 77
        assert "--timeout-ms" in state_parser(CONTEXT).format_help()
        return
    options = read_serve([*BOTH, wait.flag, "77"], CONTEXT)
    assert settings_ms(options)[wait.name] == 77
    lines = render_deadlines(settings_ms(options)).splitlines()
    (shown,) = [line for line in lines if " 77 ms " in line]
    assert shown.split("  ")[1] == wait.name
    assert wait.flag in serve_parser(CONTEXT).format_help()


def test_an_idle_worker_outlives_the_longest_heartbeat() -> None:
    options = read_serve([*SOCKET, "--heartbeat-ms", "300000"], CONTEXT)
    assert 2 * options.heartbeat_ms <= worker.main.IDLE_MS
