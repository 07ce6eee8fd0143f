"""Every bounded wait in one table: what docs/deadlines.md shows and `serve` prints at its start.

The values are those of the modules that wait; deadlines_test.py holds both against this table. It
must not wait itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FIXED: Final = "-"


@dataclass(frozen=True)
class Wait:
    """One bounded wait. default_ms: of `serve`. flag: how to set it, FIXED if it can't be set."""

    name: str
    default_ms: int
    flag: str
    bounds: str


WAITS: Final = (
    Wait("handshake", 20_000, "--handshake-ms", "all ranks have connected and said HELLO"),
    Wait("load", 600_000, "--load-ms", "one rank has loaded its weights and allocated its state"),
    Wait("phase", 120_000, "--phase-ms", "one rank's answer in one phase: its plan, a partial"),
    Wait("send", 30_000, "--send-ms", "one frame is written to one rank"),
    Wait("heartbeat", 60_000, "--heartbeat-ms", "an idle group runs an empty step"),
    Wait("drain", 10_000, "--drain-ms", "after a signal, live requests may finish"),
    Wait("queue", 60_000, "--queue-ms", "over HTTP, a request waits for a slot"),
    Wait("request", 20_000, "--request-ms", "over HTTP, a request has arrived, head and body"),
    Wait("linger", 2_000, "--linger-ms", "over HTTP, a failure can be read before the end"),
    Wait("restart", 1_000, FIXED, "before the first restart; doubled for each further one"),
    Wait("keep alive", 5_000, FIXED, "an HTTP connection without a request stays open"),
    Wait("stall", 30_000, FIXED, "an HTTP client that takes nothing of its answer is kept"),
    Wait("template", 5_000, FIXED, "a chat template has written its text"),
    Wait("discard", 1_000, FIXED, "what is still sent of a refused HTTP body is read"),
    Wait("release", 5_000, FIXED, "after the drain, dropped requests leave; then ranks are killed"),
    Wait("close", 5_000, "--close-ms", "all workers have left after a clean end; then killed"),
    Wait("kill", 5_000, FIXED, "the kernel has ended the killed workers"),
    Wait("last words", 500, FIXED, "after a failure, workers leave by themselves; then killed"),
    Wait("gone rank", 250, FIXED, "an awaited rank answers although another has gone"),
    Wait("undue read", 250, FIXED, "what a rank says while nothing is due is read"),
    Wait("flush", 1_000, FIXED, "at the end, clients read what they were told"),
    Wait("traces", 5_000, FIXED, "at the end, trace files take the steps that wait"),
    Wait("accept pause", 1_000, FIXED, "no client is accepted after descriptors ran out"),
    Wait("liveness", 50, FIXED, "at start-up, one look whether a worker has ended already"),
    Wait("state", 5_000, "state --timeout-ms", "`state` has its answer"),
    Wait("worker connect", 2_000, FIXED, "a worker that serve started has connected"),
    Wait("worker idle", 600_000, FIXED, "a worker gets the next frame of its coordinator"),
    Wait("worker send", 10_000, FIXED, "a worker has written one frame"),
    Wait("worker hang-up", 3_000, FIXED, "a computing worker ends after its coordinator is gone"),
)


def default_ms(name: str) -> int:
    """The default of the wait with this name."""
    (found,) = [wait.default_ms for wait in WAITS if wait.name == name]
    return found


def render_deadlines(values_ms: Mapping[str, int]) -> str:
    """The table as text. values_ms: the settings in force, by name, where not the default."""
    rows = [
        (wait.name, f"{values_ms.get(wait.name, wait.default_ms)} ms", wait.flag, wait.bounds)
        for wait in WAITS
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"  {name:<{widths[0]}}  {value:>{widths[1]}}  {flag:<{widths[2]}}  {bounds}"
        for name, value, flag, bounds in rows
    ]
    return "\n".join(["every wait is bounded:", *lines]) + "\n"
