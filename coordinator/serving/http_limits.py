"""What one client may take of the server, whatever it sends (docs/spec/http.md H20)."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

from errors import ConfigError

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


def connections_allowed(wanted: int | None) -> int:
    """How many connections are answered at once; None: the default, or as many as are possible.

    Raises ConfigError when this process may not have the descriptors for them.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = _RESERVED_DESCRIPTORS + CONNECTIONS_RESERVED
    if soft == resource.RLIM_INFINITY:
        return wanted or CONNECTIONS_DEFAULT
    if soft <= kept:
        rule = f"must be at least {kept + 1}: so many descriptors serve one connection"
        raise ConfigError.single("RLIMIT_NOFILE", soft, rule)
    possible = soft - kept
    if wanted is not None and wanted > possible:
        rule = f"must be at most {possible} here: a process has no more descriptors"
        raise ConfigError.single("--max-connections", wanted, rule)
    return wanted or min(CONNECTIONS_DEFAULT, possible)
