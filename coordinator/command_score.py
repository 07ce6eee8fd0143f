"""`score`: teacher-forced log-probabilities of given tokens, in chunks of any size."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from coordinator.model_options import ScoreOptions
from coordinator.model_run import ModelBindings, running_model
from coordinator.model_session import ModelSession
from coordinator.run_files import LEDGER, RunFiles
from errors import ConfigError
from manifest.run_manifest import ModelOptions, RunManifest
from program.artifacts import ScoredPosition
from program.plan import Admit, PlanLimits, Release, Row, Score, StepPlan, pages_needed
from wire.recorder import Recorder

# A token id and a comma take at most 9 bytes; a context of 262,144 tokens fits.
TOKENS_BYTES_MAX: Final = 4 << 20
_REQUEST, _SLOT, _GENERATION = 0, 0, 1


@dataclass(frozen=True)
class ScoreResult:
    """positions: in order. logits_sha256: over the digests of the rows' logits, in order."""

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


def read_tokens(path: Path) -> list[int]:
    """The JSON list of token ids in a file. Raises ConfigError."""
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
    return list(value)


def check_tokens(tokens: Sequence[int], vocab_size: int, context_tokens: int) -> None:
    """Raises ConfigError for an empty or too long prompt, or a token id out of range."""
    if not tokens:
        raise ConfigError.single("tokens", "[]", "must hold at least one token id")
    if len(tokens) > context_tokens:
        rule = f"must be at most {context_tokens}, the model's context"
        raise ConfigError.single("number of tokens", len(tokens), rule)
    for index, token in enumerate(tokens):
        if not 0 <= token < vocab_size:
            rule = f"must be at least 0 and below the vocabulary's {vocab_size}"
            raise ConfigError.single(f"tokens[{index}]", token, rule)


def score(options: ScoreOptions, bindings: ModelBindings) -> ScoreResult:
    """Run the tokens through the model once. Raises ConfigError, PeerError, TPError."""
    tokens = read_tokens(options.tokens)
    files = RunFiles(options.ledger) if options.ledger is not None else None
    recorder = Recorder(keep_bytes=files is not None)
    manifest = _one_request(options.manifest)
    with running_model(manifest, bindings, recorder) as (session, setup):
        check_tokens(tokens, setup.config.vocab_size, setup.config.max_position_embeddings)
        result = score_tokens(session, tokens, options)
    if files is not None:
        files.write(LEDGER, recorder.ledger())
    return result


def score_tokens(
    session: ModelSession, tokens: Sequence[int], options: ScoreOptions
) -> ScoreResult:
    """The steps of one scored request on a loaded session; its slot is free afterwards."""
    positions: list[ScoredPosition] = []
    digests = hashlib.sha256()
    for plan in plans(tokens, options, session.limits, session.table.next_step):
        for scored in session.step(plan).artifacts:
            if isinstance(scored, ScoredPosition):
                positions.append(scored)
                if scored.logits_sha256 is not None:
                    digests.update(bytes.fromhex(scored.logits_sha256))
    return ScoreResult(tuple(positions), digests.hexdigest())


def plans(
    tokens: Sequence[int], options: ScoreOptions, limits: PlanLimits, first_step: int
) -> Iterator[StepPlan]:
    """One admission, rows of the chunks, one release; a step per chunk and one for the release."""
    pages = tuple(range(pages_needed(len(tokens), limits.page_tokens)))
    if len(pages) > limits.pages:
        rule = f"needs {len(pages)} pages, the ranks have {limits.pages}"
        raise ConfigError.single("number of tokens", len(tokens), rule, "config.capacity")
    admit = Admit(_SLOT, _REQUEST, _GENERATION, pages, len(tokens), len(tokens), None)
    wanted_from = 0 if options.last is None else max(0, len(tokens) - options.last)
    step = first_step
    for start, stop in chunks(len(tokens), options, limits):
        last = stop - max(start, wanted_from)
        artifact = Score(last, min(options.top, limits.vocab_size)) if last > 0 else None
        row = Row(_REQUEST, _SLOT, start, tuple(tokens[start:stop]), artifact)
        yield StepPlan(step, admissions=(admit,) if start == 0 else (), rows=(row,))
        step += 1
    yield StepPlan(step, releases=(Release(_SLOT, _REQUEST, _GENERATION),))


def chunks(count: int, options: ScoreOptions, limits: PlanLimits) -> Iterator[tuple[int, int]]:
    """[start, stop) of every step: prefill in chunks, then from `decode_from` on token by token."""
    model = options.manifest.model
    size = options.prefill_tokens or (model.max_step_tokens if model else 1)
    size = min(size, limits.tokens_per_step)
    prefill = count if options.decode_from is None else min(count, options.decode_from)
    start = 0
    while start < count:
        stop = min(start + size, prefill) if start < prefill else start + 1
        yield start, stop
        start = stop


def _one_request(manifest: RunManifest) -> RunManifest:
    """Scoring holds one request at a time, whatever the batch option says."""
    model: ModelOptions | None = manifest.model
    return manifest if model is None else replace(manifest, model=replace(model, max_batch=1))
