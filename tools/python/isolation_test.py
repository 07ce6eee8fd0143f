"""Tests run with a network and a /tmp of their own: nothing of the machine, nothing of each other.

Bazel falls back to a weaker sandbox without a word where Linux namespaces are not allowed;
this test is what notices.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

# TEST-NET-3 (RFC 5737): routed nowhere, so a machine with a network can't answer by luck.
UNROUTED = ("203.0.113.1", 80)
# Fixed on purpose: two tests that bind it at the same time don't collide.
FIXED_PORT = 4242


def test_only_loopback_exists() -> None:
    rows = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]
    assert [row.split(":")[0].strip() for row in rows] == ["lo"]


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", FIXED_PORT)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()


def test_the_network_is_out_of_reach() -> None:
    with pytest.raises(OSError, match="unreachable"):
        socket.create_connection(UNROUTED, timeout=5)


def test_tmp_is_private() -> None:
    """A name in /tmp is short enough for a Unix socket, and nobody else has it."""
    with Path("/tmp/rankproof-fixed-name").open("x"):
        pass
    # Bazel may mount folders of its own there, and the tree itself where it lies below /tmp.
    files = {path.name for path in Path("/tmp").iterdir() if not path.is_dir()}
    assert files == {"rankproof-fixed-name"}
