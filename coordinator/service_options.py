"""What a command line about a service asks for, as immutable values."""

from __future__ import annotations

from dataclasses import dataclass

from manifest.run_manifest import RunManifest
from wire.address import Address


@dataclass(frozen=True)
class ServeOptions:
    """Serve a model. control: path of the Unix socket. waiting_max: length of the queue."""

    manifest: RunManifest
    control: Address
    waiting_max: int
    heartbeat_ms: int
    drain_ms: int


@dataclass(frozen=True)
class StateOptions:
    """Show what exists in the service at `control`. json: the object of V5 alone."""

    control: Address
    timeout_ms: int
    json: bool
