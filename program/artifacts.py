"""What the primary rank hands back for a row: tokens and log-probabilities, with their identity.

Each artifact carries the request and the position it belongs to; the step is that of the RESULT it
travels in. The coordinator refuses an artifact that its plan did not ask for. Log-probabilities
(natural logarithm) are those of the model's own logits, before any penalty, bias or temperature.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One alternative: a token and its log-probability; -inf for a token that can't occur."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class SampledToken:
    """Answer to `Sample`. position: where the token will stand, the number of tokens before it.

    logprob and top are None and () when `Sample.logprobs` is None. top is sorted by falling
    log-probability, then by rising token id.
    """

    request_id: int
    position: int
    token_id: int
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredPosition:
    """Answer to `Score` for one position: what the logits after `token_id` say comes next.

    logits_sha256: on the last position of a row, SHA-256 of the logits of all its scored positions,
    [positions, vocabulary] in the program's element type, little-endian; None on the others.
    """

    request_id: int
    position: int
    token_id: int
    top: tuple[TokenLogprob, ...]
    logits_sha256: str | None = None


ArtifactValue = SampledToken | ScoredPosition
