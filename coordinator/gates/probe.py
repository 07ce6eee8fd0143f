"""The canary: a fixed request on the idle service, whose every bit is known from fresh processes.

It is longer than a page and than a step, so it prefills in chunks, decodes over a page's edge and
uses every kind of state. Whatever an earlier request left behind and it reads, shows here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coordinator.gates.live import Live
from coordinator.request import Outcome

PROMPT: Final = (5, 17, 2, 33, 60, 8, 91, 44, 12, 70, 3)
MAX_TOKENS: Final = 5
# Binary64 numbers as text, so that nothing is lost and a difference can be read.
Tokens = tuple[tuple[int, str, tuple[tuple[int, str], ...]], ...]


@dataclass(frozen=True)
class Probe:
    """tokens: id, log-probability and alternatives. hidden: by step, the digest of every rank.

    rows: of each step, first position and number of tokens; equal rows make equal bits due.
    """

    tokens: Tokens
    hidden: tuple[tuple[str, ...], ...]
    rows: tuple[tuple[tuple[int, int], ...], ...]


def probe(service: Live) -> Probe:
    """Runs it; the service must be idle, and is idle afterwards."""
    first = len(service.steps)
    request = service.alone(PROMPT, MAX_TOKENS, logprobs=3)
    if request.end.outcome is not Outcome.LENGTH:
        raise AssertionError(f"the probe ended as {request.end}")
    service.demand_idle()
    steps = service.steps[first:]
    return Probe(
        tokens=tuple(
            (
                token.token_id,
                float.hex(token.logprob or 0.0),
                tuple((entry.token_id, entry.logprob.hex()) for entry in token.top),
            )
            for token in request.tokens
        ),
        hidden=tuple(tuple(report.hidden_digest for report in step.reports) for step in steps),
        rows=tuple(
            tuple((row.start_position, len(row.token_ids)) for row in step.plan.rows)
            for step in steps
        ),
    )
