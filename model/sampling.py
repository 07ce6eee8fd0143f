"""From one row of logits to one token, and to its log-probabilities.

Order: logit bias, repetition penalty, presence and frequency penalty; then, with a temperature
above 0: temperature, min-p, top-k, top-p, one draw. Every tie goes to the lowest token id. A row is
handled alone, in float64, so its token can't depend on the batch. Log-probabilities come from the
untouched logits and are computed beside the token, never on the way to it.

Sources: top-p, Holtzman et al. (arXiv:1904.09751); min-p, Nguyen et al. (arXiv:2407.01082);
repetition penalty, Keskar et al. (arXiv:1909.05858); presence and frequency penalties as in the
public completion interfaces (generated tokens only).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from errors import MisuseError, NumericsError
from model.uniforms import uniform
from program.artifacts import SampledToken, ScoredPosition, TokenLogprob
from program.plan import Row, Sample, Sampling, Score

Logits = NDArray[Any]
Float64 = NDArray[np.float64]
TokenIds = NDArray[np.int64]

# Top-p rarely needs more candidates than this; where it does, eight times as many are tried.
_NUCLEUS_FIRST_TRY: Final = 256


class TokenHistory:
    """The tokens of one request so far, for penalties and for the position of the next one.

    prompt_tokens: how many of the first tokens are the prompt.
    """

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._length = 0
        self._prompt: set[int] = set()
        self._generated: Counter[int] = Counter()

    @property
    def length(self) -> int:
        """Tokens so far; the position of the token that is sampled next."""
        return self._length

    def extend(self, token_ids: Sequence[int]) -> None:
        """Adds the tokens of one row, in order."""
        prompt_left = max(0, self._prompt_tokens - self._length)
        self._prompt.update(token_ids[:prompt_left])
        self._generated.update(token_ids[prompt_left:])
        self._length += len(token_ids)

    def seen(self) -> TokenIds:
        """Ids in prompt or output, each once: [n]."""
        return np.array(sorted(self._prompt | self._generated.keys()), dtype=np.int64)

    def generated(self) -> tuple[TokenIds, Float64]:
        """Ids in the output and how often each occurs: [n], [n]."""
        ids = np.array(list(self._generated.keys()), dtype=np.int64)
        counts = np.array(list(self._generated.values()), dtype=np.float64)
        return ids, counts


def sample(
    request_id: int, logits: Logits, sampling: Sampling, history: TokenHistory, wanted: Sample
) -> SampledToken:
    """The next token of a request whose last token gave these logits.

    logits: [vocab] float32 or float64. Raises NumericsError when one is not finite.
    """
    _check_finite(logits, request_id)
    token_id = _pick(logits, sampling, history)
    if wanted.logprobs is None:
        return SampledToken(request_id, history.length, token_id)
    logprobs = _log_softmax(logits)
    top = _top(logits, logprobs, wanted.logprobs)
    return SampledToken(request_id, history.length, token_id, float(logprobs[token_id]), top)


def score(row: Row, logits: Logits, wanted: Score) -> tuple[ScoredPosition, ...]:
    """What comes next after each of the row's last `wanted.last` positions.

    logits: [wanted.last, vocab]. Raises NumericsError when one is not finite.
    """
    if logits.shape[0] != wanted.last:
        raise MisuseError(f"{logits.shape[0]} rows of logits for {wanted.last} positions")
    _check_finite(logits, row.request_id)
    first = len(row.token_ids) - wanted.last
    scored = []
    for offset, token_id in enumerate(row.token_ids[first:]):
        top = _top(logits[offset], _log_softmax(logits[offset]), wanted.top)
        position = row.start_position + first + offset
        scored.append(ScoredPosition(row.request_id, position, token_id, top))
    return tuple(scored)


def adjusted(logits: Logits, sampling: Sampling, history: TokenHistory) -> Float64:
    """Logits with bias and penalties, before any temperature: [vocab] float64, a new array."""
    scores: Float64 = logits.astype(np.float64)
    for token_id, bias in sampling.logit_bias:
        scores[token_id] += bias
    if sampling.repetition_penalty != 1.0:
        ids = history.seen()
        penalty = sampling.repetition_penalty
        values = scores[ids]
        scores[ids] = np.where(values > 0.0, values / penalty, values * penalty)
    if sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0:
        ids, counts = history.generated()
        scores[ids] -= sampling.presence_penalty + sampling.frequency_penalty * counts
    return scores


def _check_finite(logits: Logits, request_id: int) -> None:
    if not np.isfinite(logits).all():
        count = int(np.count_nonzero(~np.isfinite(logits)))
        raise NumericsError(f"{count} logits of request {request_id} are NaN or infinite")


def _pick(logits: Logits, sampling: Sampling, history: TokenHistory) -> int:
    scores = adjusted(logits, sampling, history)
    if sampling.temperature == 0.0:
        # argmax returns the first of equal maxima: the lowest id.
        return int(np.argmax(scores))
    token_ids: TokenIds = np.arange(scores.size)
    # Top-k before the exponentials, because it leaves few: the same set as after min-p, for both
    # keep the best scores and equal scores have equal weights.
    if 0 < sampling.top_k < scores.size:
        token_ids = np.sort(_best(scores, sampling.top_k))
        scores = scores[token_ids]
    weights = _weights(scores, sampling.temperature)
    kept = _kept(scores, weights, sampling)
    if kept is not None:
        token_ids, weights = token_ids[kept], weights[kept]
    return _draw(token_ids, weights, uniform(sampling.seed, history.length))


def _weights(scores: Float64, temperature: float) -> Float64:
    """exp((score - best score) / temperature), so the best weight is exactly 1."""
    weights: Float64 = scores - scores.max()
    # A tiny temperature sends every score but the best to -inf, which is what it means.
    with np.errstate(over="ignore", under="ignore"):
        weights /= temperature
        np.exp(weights, out=weights)
    return weights


def _kept(scores: Float64, weights: Float64, sampling: Sampling) -> TokenIds | None:
    """Indices that min-p and then top-p leave, ascending; None for all of them."""
    kept: TokenIds | None = None
    if sampling.min_p > 0.0:
        kept = np.flatnonzero(weights >= sampling.min_p)
        scores, weights = scores[kept], weights[kept]
    if sampling.top_p < 1.0:
        nucleus = np.sort(_nucleus(scores, weights, sampling.top_p))
        kept = nucleus if kept is None else kept[nucleus]
    return kept


def _best(scores: Float64, count: int) -> TokenIds:
    """Indices of the `count` highest scores, best first, ties by lower index."""
    candidates = np.arange(scores.size)
    if 0 < count < scores.size:
        lowest = scores.size - count
        threshold = np.partition(scores, lowest)[lowest]
        candidates = np.flatnonzero(scores >= threshold)
    order = np.argsort(-scores[candidates], kind="stable")
    best: TokenIds = candidates[order[:count]]
    return best


def _nucleus(scores: Float64, weights: Float64, top_p: float) -> TokenIds:
    """Indices of the fewest best tokens whose weights reach top_p of the total; at least one."""
    target = top_p * weights.sum()
    count = min(_NUCLEUS_FIRST_TRY, scores.size)
    while True:
        best = _best(scores, count)
        reached = np.cumsum(weights[best])
        if reached[-1] >= target or count == scores.size:
            return best[: int(np.searchsorted(reached, target)) + 1]
        count = min(8 * count, scores.size)


def _draw(token_ids: TokenIds, weights: Float64, point: float) -> int:
    """The token whose share of [0, 1) holds `point`; shares lie in order of ids."""
    reached = np.cumsum(weights)
    index = int(np.searchsorted(reached, point * reached[-1], side="right"))
    # Rounding may put the point on the very end; the last token with a weight takes it.
    last = int(np.flatnonzero(weights)[-1])
    return int(token_ids[min(index, last)])


def _log_softmax(logits: Logits) -> Float64:
    values: Float64 = logits.astype(np.float64)
    values -= values.max()
    with np.errstate(under="ignore"):
        values -= np.log(np.exp(values).sum())
    return values


def _top(logits: Logits, logprobs: Float64, count: int) -> tuple[TokenLogprob, ...]:
    """The `count` most likely tokens. Ranked by logits: the subtraction may round two into one."""
    best = _best(logits.astype(np.float64), count)
    return tuple(TokenLogprob(int(i), float(logprobs[i])) for i in best)
