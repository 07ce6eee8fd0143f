"""Golden sequences scored over worker processes, for the gates of the model's system tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.command_score import ScoreResult, score_tokens
from coordinator.logprob_gates import (
    Differences,
    expected,
    float32_gate,
    float64_gate,
    found,
)
from coordinator.model_cases import bindings, model_run, score_options
from coordinator.model_run import running_model
from coordinator.model_session import ModelSession
from coordinator.model_setup import set_up
from coordinator.score_plans import score_request
from manifest.run_manifest import RunManifest
from testdata.golden import golden_loader
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import SHAPES
from wire.recorder import Recorder


class Folders:
    """Checkpoint folders of the golden shapes, written below `root` when first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._manifest = golden_loader.load_manifest()

    def __getitem__(self, shape: str) -> Path:
        folder, entry = self._root / shape, self._manifest.shapes[shape]
        if not folder.exists():
            written = write_checkpoint(folder, SHAPES[shape], entry.seed)
            if written != entry.checkpoint_sha256:
                raise AssertionError(f"{shape} is not the checkpoint the goldens were made of")
        return folder


@dataclass(frozen=True)
class GoldenRun:
    """One golden shape run one way. program: sharded or replicated. compute: float32 or float64."""

    shape: str
    program: str
    degree: int
    compute: str

    def __str__(self) -> str:
        return f"{self.shape}-{self.program}-tp{self.degree}-{self.compute}"

    def manifest(self, folder: Path, **fields: object) -> RunManifest:
        return model_run(
            folder,
            program=f"qwen35/{self.program}",
            ranks=self.degree,
            model__compute_dtype=self.compute,
            **fields,
        )


class Scorer:
    """A loaded model that scores one golden sequence after the other."""

    def __init__(self, session: ModelSession, manifest: RunManifest) -> None:
        self.session = session
        self._manifest = manifest

    def score(self, sequence: golden_loader.Sequence, **options: Any) -> ScoreResult:
        """The stored rows with all tokens: by default the prompt in one step, then token by token.

        options: others of `score`.
        """
        limits = self.session.limits
        tokens = tuple(int(token) for token in sequence.ids)
        given = {
            "top": limits.vocab_size,
            "last": len(tokens) - int(sequence.positions[0]),
            "decode_from": sequence.prompt,
        }
        asked = score_options(self._manifest, **given | options)
        request = score_request(tokens, asked, limits, limits.context_tokens)
        return score_tokens(self.session, request)


@contextmanager
def scorer(manifest: RunManifest, sequences: Sequence[golden_loader.Sequence]) -> Iterator[Scorer]:
    """Worker processes that have loaded the model and have room for the longest sequence."""
    given = bindings()
    longest = max(len(sequence.ids) for sequence in sequences)
    setup = set_up(manifest, given.machine, longest)
    with running_model(setup, manifest, given, Recorder(keep_bytes=False)) as session:
        yield Scorer(session, manifest)


def gated(folder: Path, run: GoldenRun, sequences: Sequence[golden_loader.Sequence]) -> Differences:
    """How far the run is from the goldens. Raises AssertionError outside the gates."""
    with scorer(run.manifest(folder), sequences) as ranks:
        results = [ranks.score(sequence) for sequence in sequences]
    engine, reference = found(results, sequences), expected(sequences)
    differences = Differences.between(engine, reference)
    float32_gate(differences)
    if run.compute == "float64":
        float64_gate(engine, reference)
    return differences
