"""What a command line asks for, as immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coordinator.model_options import GenerateOptions, PlanOptions, ScoreOptions
from coordinator.service_options import ServeOptions, StateOptions
from manifest.run_manifest import RunManifest


@dataclass(frozen=True)
class HelpRequest:
    """Print `text` and end."""

    text: str


@dataclass(frozen=True)
class VersionRequest:
    """Print the identity of the sources and end."""


@dataclass(frozen=True)
class RunOptions:
    """Run the block once. out: absolute folder for the run's files. json: one object on stdout."""

    manifest: RunManifest
    out: Path
    json: bool


@dataclass(frozen=True)
class LedgerOptions:
    """Show the frames of a recorded run; each filter that is not None must match."""

    directory: Path
    rank: int | None = None
    kind: str | None = None
    phase: str | None = None
    tensor: str | None = None
    direction: str | None = None


@dataclass(frozen=True)
class ReplayOptions:
    """Replay one side of a recorded run. rank: None for all ranks."""

    directory: Path
    role: str
    rank: int | None = None


Options = (
    HelpRequest
    | VersionRequest
    | RunOptions
    | LedgerOptions
    | ReplayOptions
    | PlanOptions
    | ScoreOptions
    | GenerateOptions
    | ServeOptions
    | StateOptions
)


@dataclass(frozen=True)
class CallContext:
    """Where a command line was typed, and which entry it was given to.

    directory: relative paths are relative to it. faults: whether this entry may plant faults.
    model: the checkpoint this build carries, if it does.
    """

    directory: Path
    faults: bool = False
    model: Path | None = None

    def path(self, typed: str) -> Path:
        return self.directory / typed
