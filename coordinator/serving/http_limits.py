"""What one client may take of the server, whatever it sends (docs/spec/http.md H20)."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

HEAD_BYTES_MAX: Final = 32 << 10
HEADERS_MAX: Final = 100
# All request bodies that are being received or answered, together.
BODIES_BYTES_MAX: Final = 128 << 20
# A connection without a request is closed after so long.
KEEP_ALIVE_MS: Final = 5_000
# A client that takes nothing of an answer for so long is gone.
STALL_MS: Final = 30_000
# For health, and for refusals, beyond the connections whose requests are answered.
CONNECTIONS_RESERVED: Final = 16
# Unless told otherwise, and unless there are fewer descriptors.
CONNECTIONS_DEFAULT: Final = 512
# Of the descriptors that a process may have: for the ranks, files, and the unexpected.
_RESERVED_DESCRIPTORS: Final = 96


@dataclass(frozen=True)
class HttpLimits:
    """connections: whose requests are answered at once.

    request_ms: from a request's first byte to its last, or from the connection on.
    """

    body_bytes: int
    connections: int
    request_ms: int
    head_bytes: int = HEAD_BYTES_MAX
    headers: int = HEADERS_MAX
    bodies_bytes: int = BODIES_BYTES_MAX
    keep_alive_ms: int = KEEP_ALIVE_MS
    stall_ms: int = STALL_MS


def connections_possible() -> int:
    """As many as this process has descriptors for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - _RESERVED_DESCRIPTORS - CONNECTIONS_RESERVED)
