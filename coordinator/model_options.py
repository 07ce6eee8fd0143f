"""What a command line about a model asks for, as immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from manifest.run_manifest import RunManifest


@dataclass(frozen=True)
class PlanOptions:
    """Show what a model run would hold and send, without starting anything."""

    manifest: RunManifest
    json: bool


@dataclass(frozen=True)
class ScoreOptions:
    """Teacher-forced log-probabilities of a token file.

    top: alternatives per position; None for 64, or all of a smaller vocabulary. last: None for all
    positions, else how many at the end. prefill_tokens: tokens per step; None for as many as it
    takes. decode_from: from this position on, one token per step; None for no such position.
    out: None for standard output. ledger: folder for the run's record, None to keep none.
    """

    manifest: RunManifest
    tokens: Path
    top: int | None
    last: int | None
    prefill_tokens: int | None
    decode_from: int | None
    out: Path | None
    ledger: Path | None


@dataclass(frozen=True)
class GenerateOptions:
    """Continue a prompt. Exactly one of text and prompt_tokens is given.

    parameters: of the request, by the names of coordinator/submission.py, as typed values.
    """

    manifest: RunManifest
    text: str | None
    prompt_tokens: tuple[int, ...] | None
    parameters: Mapping[str, object]
    json: bool
