"""`score`: teacher-forced log-probabilities of given tokens, in chunks of any size."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator.model_options import ScoreOptions
from coordinator.model_run import ModelBindings, running_model
from coordinator.model_session import ModelSession
from coordinator.model_setup import set_up
from coordinator.run_files import LEDGER, MANIFEST, TAPE, RunFiles
from coordinator.score_plans import ScoreRequest, plans, score_request
from errors import ConfigError, TPError
from manifest.run_manifest import RunManifest
from program.artifacts import ScoredPosition
from wire.recorder import Recorder

# A token id and a comma take at most 9 bytes; a context of 262,144 tokens fits.
TOKENS_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True)
class ScoreResult:
    """positions: in order. logits_sha256: docs/spec/program.md, Q11."""

    positions: tuple[ScoredPosition, ...]
    logits_sha256: str

    def to_json(self) -> str:
        return json.dumps(
            {
                "positions": [
                    {
                        "position": scored.position,
                        "token": scored.token_id,
                        "top": [[entry.token_id, entry.logprob] for entry in scored.top],
                    }
                    for scored in self.positions
                ],
                "logits_sha256": self.logits_sha256,
            },
            allow_nan=False,
        )


def read_tokens(path: Path) -> tuple[int, ...]:
    """The JSON list of token ids in a file. Raises ConfigError."""
    if not path.is_file():  # also keeps a pipe or a device from being opened
        raise ConfigError.single("--tokens", path, "must be a file")
    try:
        with path.open("rb") as file:
            data = file.read(TOKENS_BYTES_MAX + 1)
    except OSError as failure:
        raise ConfigError.single("--tokens", path, f"can't be read: {failure.strerror}") from None
    if len(data) > TOKENS_BYTES_MAX:
        raise ConfigError.single("--tokens", path, f"must have at most {TOKENS_BYTES_MAX} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ConfigError.single("--tokens", path, "must be JSON") from None
    if not isinstance(value, list) or any(type(item) is not int for item in value):
        raise ConfigError.single("--tokens", path, "must be a JSON list of integers")
    return tuple(value)


def score(options: ScoreOptions, bindings: ModelBindings) -> ScoreResult:
    """Run the tokens through the model once. Raises ConfigError, PeerError, TPError.

    The record of a failed run is written too; its ledger ends with the failure.
    """
    tokens = read_tokens(options.tokens)
    manifest = options.manifest
    setup = set_up(manifest, bindings.machine, positions_max=max(1, len(tokens)))
    manifest = manifest.with_identities(bindings.source, setup.spec.arithmetic)
    context_tokens = setup.config.max_position_embeddings
    request = score_request(tokens, options, setup.capacity.limits, context_tokens)
    files = RunFiles(options.ledger, "--ledger") if options.ledger is not None else None
    recorder = Recorder(keep_bytes=files is not None)
    try:
        with running_model(setup, manifest, bindings, recorder) as session:
            result = score_tokens(session, request)
            reports = session.reports
    except TPError:
        if files is not None:
            _record(files, manifest, recorder)
        raise
    if files is not None:
        _record(files, manifest, recorder)
        files.write_loads(reports)
    return result


def _record(files: RunFiles, manifest: RunManifest, recorder: Recorder) -> None:
    """What `coordinator ledger` shows."""
    files.write(MANIFEST, manifest.to_json_bytes())
    files.write(LEDGER, recorder.ledger())
    files.write(TAPE, recorder.tape())


def score_tokens(session: ModelSession, request: ScoreRequest) -> ScoreResult:
    """The steps of one scored request on a loaded, idle session; its slot is free afterwards."""
    positions: list[ScoredPosition] = []
    digests = hashlib.sha256()
    for plan in plans(request, session.table):
        for scored in session.step(plan).artifacts:
            if isinstance(scored, ScoredPosition):
                positions.append(scored)
                if scored.logits_sha256 is not None:
                    digests.update(bytes.fromhex(scored.logits_sha256))
    return ScoreResult(tuple(positions), digests.hexdigest())
