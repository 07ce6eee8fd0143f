"""What a command line about a service asks for, as immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from manifest.run_manifest import RunManifest
from wire.address import Address


@dataclass(frozen=True)
class HttpOptions:
    """Serve over HTTP. host: an IP address. port: 0 for any that is free. connections: None for
    as many as usual, or as there are descriptors for.

    restart_policy: a value of `serving.restarts.RestartPolicy`. trace, chrome_trace: files for the
    steps' times. dump_dir: folder for the last frames before a failure.
    """

    host: str
    port: int
    api_key_file: Path | None
    restart_policy: str
    queue_ms: int
    linger_ms: int
    request_ms: int
    body_bytes: int
    connections: int | None
    trace: Path | None
    chrome_trace: Path | None
    dump_dir: Path | None


@dataclass(frozen=True)
class ServeOptions:
    """Serve a model. waiting_max: length of the queue.

    control: path of the Unix socket, None for none; http: None for none; there is one of them.
    """

    manifest: RunManifest
    control: Address | None
    waiting_max: int
    heartbeat_ms: int
    drain_ms: int
    http: HttpOptions | None = None


@dataclass(frozen=True)
class StateOptions:
    """Show what exists in the service at `control`. json: the object of V5 alone."""

    control: Address
    timeout_ms: int
    json: bool
