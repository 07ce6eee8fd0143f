"""The bounds of the HTTP interface."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """body_bytes_max, body_ms: size of a request's body, and how long it may take to arrive.

    queue_ms: how long a request may wait for a slot; None: as long as its client does. send_ms: how
    long one write to a client may take. unread_bytes_max: what a client may leave unread beyond the
    buffers of its connection. prompts_max: prompts of one body.
    template_ms, template_characters_max: time and output of a chat template.
    """

    body_bytes_max: int = 4 << 20
    body_ms: int = 30_000
    queue_ms: int | None = 60_000
    send_ms: int = 10_000
    unread_bytes_max: int = 1 << 20
    prompts_max: int = 64
    template_ms: int = 5_000
    template_characters_max: int = 4 << 20
