"""What a run has to say about itself when it is over: one value, filled in by main.py.

coordinator/report.py turns it into the terminal's text and the JSON object. It must not know how
either looks.
"""

from __future__ import annotations

from dataclasses import dataclass

from errors import PeerError, PoisonedError, TPError
from manifest.run_manifest import RunManifest


@dataclass(frozen=True)
class Traffic:
    """Frames and bytes in one direction; bytes are of whole frames: header, metadata, payload."""

    frames: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class WorkerSummary:
    """One rank, seen from the worker: `sent` is what the coordinator received from it.

    peer: how it is known ("pid 4242", or "external"); None when it never connected.
    exit_code: None for an external worker. last_words: its last lines on standard error.
    """

    rank: int
    peer: str | None
    sent: Traffic = Traffic()
    received: Traffic = Traffic()
    exit_code: int | None = None
    last_words: str = ""


@dataclass(frozen=True)
class Failure:
    """The first thing that went wrong. rank, phase, errno: None where the failure has none."""

    code: str
    rank: int | None
    phase: str | None
    sentence: str
    errno: int | None = None
    errno_name: str | None = None

    @classmethod
    def of(cls, error: TPError) -> Failure:
        """The failure as the report shows it; a poisoned group shows its cause."""
        cause = error.cause if isinstance(error, PoisonedError) else error
        if isinstance(cause, PeerError):
            where = (cause.rank, cause.phase)
            return cls(cause.code, *where, cause.message, cause.errno, cause.errno_name)
        return cls(cause.code, None, None, cause.message)


@dataclass(frozen=True)
class OracleErrors:
    """How far the output is from the float64 reference: largest absolute, and relative in L2."""

    max_abs: float
    relative_l2: float


@dataclass(frozen=True)
class RunSummary:
    """A whole run.

    payload_bytes, header_bytes, metadata_bytes: sums over the ledger (docs/spec/session.md, S14).
    payload_bytes_expected: by the program's formula. oracle, outputs_identical, output_sha256: None
    where the run has no output. strangers: connections that were not a worker's.
    out_dir: None when nothing was written. files: names in it, in the order to show.
    """

    manifest: RunManifest
    payload_bytes: int
    payload_bytes_expected: int
    header_bytes: int
    metadata_bytes: int
    workers: tuple[WorkerSummary, ...]
    elapsed_seconds: float
    oracle: OracleErrors | None = None
    outputs_identical: bool | None = None
    output_sha256: str | None = None
    strangers: int = 0
    out_dir: str | None = None
    files: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None
