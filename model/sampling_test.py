"""Sampling against a slow reference that follows the definitions one token at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import model.sampling as sampling_module
from errors import MisuseError, NumericsError
from model.sampling import TokenHistory, adjusted, sample, score
from model.uniforms import uniform
from program.plan import Row, Sample, Sampling, Score

VOCAB = 23
# Few distinct values, so that ties are common.
LOGITS = st.lists(
    st.one_of(st.integers(-6, 6).map(float), st.floats(-30, 30, width=32)),
    min_size=VOCAB,
    max_size=VOCAB,
)
POINTS = [*(i / 16 for i in range(16)), 1 - 2**-53]
TOKENS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12)
BIAS = st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-20, 20), max_size=4)
SAMPLINGS = st.builds(
    lambda bias, **fields: Sampling(logit_bias=tuple(sorted(bias.items())), **fields),
    bias=BIAS,
    temperature=st.one_of(st.just(0.0), st.just(1e-300), st.floats(0.05, 4)),
    top_k=st.integers(0, VOCAB),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1)),
    min_p=st.one_of(st.just(0.0), st.floats(0, 1)),
    repetition_penalty=st.one_of(st.just(1.0), st.floats(0.5, 2)),
    presence_penalty=st.one_of(st.just(0.0), st.floats(-2, 2)),
    frequency_penalty=st.one_of(st.just(0.0), st.floats(-2, 2)),
    seed=st.integers(0, 2**64 - 1),
)


def row_of(values: Sequence[float]) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def history_of(tokens: Sequence[int], prompt_tokens: int) -> TokenHistory:
    history = TokenHistory(prompt_tokens)
    history.extend(tokens)
    return history


def token_of(logits: NDArray[Any], sampling: Sampling, history: TokenHistory) -> int:
    return sample(1, logits, sampling, history, Sample()).token_id


def reference_scores(
    logits: Sequence[float], sampling: Sampling, tokens: Sequence[int], prompt_tokens: int
) -> list[float]:
    generated = list(tokens[prompt_tokens:])
    bias = dict(sampling.logit_bias)
    scores = []
    for token_id, logit in enumerate(logits):
        value = logit + bias.get(token_id, 0.0)
        if token_id in tokens:
            penalty = sampling.repetition_penalty
            value = value / penalty if value > 0 else value * penalty
        if token_id in generated:
            value -= sampling.presence_penalty
            value -= sampling.frequency_penalty * generated.count(token_id)
        scores.append(value)
    return scores


def reference_kept(scores: Sequence[float], sampling: Sampling) -> dict[int, float]:
    """Weights of the tokens that remain. Cases where rounding decides are not tested here."""
    best = max(scores)
    weight = {
        i: math.exp(max((s - best) / sampling.temperature, -800)) for i, s in enumerate(scores)
    }
    if sampling.min_p:
        assume(all(abs(w - sampling.min_p) > 1e-12 for w in weight.values() if w != 1))
    ranked = sorted(weight, key=lambda i: (-scores[i], i))
    ranked = [i for i in ranked if weight[i] >= sampling.min_p]
    if sampling.top_k:
        ranked = ranked[: sampling.top_k]
    if sampling.top_p < 1:
        target = sampling.top_p * math.fsum(weight[i] for i in ranked)
        nucleus: list[int] = []
        for token_id in ranked:
            reached = math.fsum(weight[i] for i in nucleus)
            assume(abs(reached - target) > 1e-12)
            if reached >= target:
                break
            nucleus.append(token_id)
        ranked = nucleus
    return {i: weight[i] for i in sorted(ranked)}


@given(LOGITS, SAMPLINGS, TOKENS, st.integers(0, 12))
def test_agrees_with_the_reference(
    values: list[float], sampling: Sampling, tokens: list[int], prompt_tokens: int
) -> None:
    logits = row_of(values)
    history = history_of(tokens, prompt_tokens)
    scores = reference_scores([float(x) for x in logits], sampling, tokens, prompt_tokens)
    assert adjusted(logits, sampling, history) == pytest.approx(scores, abs=1e-12)
    if sampling.temperature == 0:
        # Two roundings of one sum may differ in the last place.
        assert scores[token_of(logits, sampling, history)] >= max(scores) - 1e-12
        return
    ordered = sorted(scores)
    gaps = [b - a for a, b in pairwise(ordered)]
    assume(all(gap == 0 or gap > 1e-12 for gap in gaps))
    kept = reference_kept(scores, sampling)
    total = math.fsum(kept.values())
    for point in POINTS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sampling_module, "uniform", lambda seed, position, u=point: u)
            token_id = token_of(logits, sampling, history)
        assert token_id in kept
        assert kept[token_id] > 0
        below = math.fsum(w for i, w in kept.items() if i < token_id)
        assert below - 1e-12 <= point * total <= below + kept[token_id] + 1e-12


@given(LOGITS, TOKENS, st.integers(0, 2**64 - 1))
def test_the_uniform_is_that_of_the_seed_and_the_position(
    values: list[float], tokens: list[int], seed: int
) -> None:
    asked: list[tuple[int, int]] = []

    def recording(seed: int, position: int) -> float:
        asked.append((seed, position))
        return uniform(seed, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling_module, "uniform", recording)
        token_of(row_of(values), Sampling(temperature=1, seed=seed), history_of(tokens, 1))
    assert asked == [(seed, len(tokens))]


@pytest.mark.parametrize(("point", "expected"), [(0.0, 1), (1 - 2**-53, 2)])
def test_a_token_without_weight_is_never_drawn(
    point: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At both ends of the interval, next to tokens whose weight underflows to nothing."""
    monkeypatch.setattr(sampling_module, "uniform", lambda seed, position: point)
    logits = row_of([-5000, 0, 0, -5000])
    assert token_of(logits, Sampling(temperature=1), history_of([0], 1)) == expected


@given(LOGITS)
def test_greedy_takes_the_lowest_of_equal_maxima(values: list[float]) -> None:
    logits = row_of(values)
    expected = [float(x) for x in logits].index(float(logits.max()))
    assert token_of(logits, Sampling(), history_of([0], 1)) == expected


def test_top_k_breaks_ties_by_the_lowest_id() -> None:
    logits = row_of([1, 2, 2, 2, 0])
    drawn = {
        token_of(logits, Sampling(temperature=1, top_k=2, seed=s), history_of([0], 1))
        for s in range(60)
    }
    assert drawn == {1, 2}


@pytest.mark.parametrize("vocab", [1, 255, 256, 257, 5000])
def test_the_nucleus_of_a_flat_distribution_grows_as_far_as_needed(vocab: int) -> None:
    logits = np.zeros(vocab, dtype=np.float32)
    drawn = {
        token_of(logits, Sampling(temperature=1, top_p=0.5, seed=s), history_of([0], 1))
        for s in range(400)
    }
    kept = math.ceil(vocab / 2)
    assert max(drawn) < kept
    assert max(drawn) >= kept * 0.9 - 1


def test_samples_follow_the_distribution() -> None:
    """Chi-square with 3 degrees of freedom; 28 is beyond the 1 - 10^-5 quantile."""
    shares = [0.1, 0.2, 0.3, 0.4]
    logits = row_of([math.log(share) for share in shares])
    counts = [0, 0, 0, 0]
    for position in range(1, 4001):
        history = TokenHistory(1)
        history.extend([0] * position)
        counts[token_of(logits, Sampling(temperature=1, seed=7), history)] += 1
    expected = [4000 * share for share in shares]
    assert sum((n - e) ** 2 / e for n, e in zip(counts, expected, strict=True)) < 28


@given(LOGITS, SAMPLINGS, TOKENS, st.integers(0, VOCAB))
def test_asking_for_logprobs_never_changes_the_token(
    values: list[float], sampling: Sampling, tokens: list[int], count: int
) -> None:
    logits = row_of(values)
    before = logits.copy()
    history = history_of(tokens, 1)
    plain = sample(1, logits, sampling, history, Sample())
    asked = sample(1, logits, sampling, history, Sample(count))
    assert asked.token_id == plain.token_id
    assert (plain.logprob, plain.top) == (None, ())
    assert len(asked.top) == count
    assert np.array_equal(logits, before)


@given(LOGITS, SAMPLINGS, TOKENS, st.integers(0, 5))
def test_a_row_does_not_depend_on_its_neighbours(
    values: list[float], sampling: Sampling, tokens: list[int], place: int
) -> None:
    batch = np.linspace(-50, 50, 6 * VOCAB, dtype=np.float32).reshape(6, VOCAB)
    batch[place] = values
    alone = sample(1, row_of(values), sampling, history_of(tokens, 1), Sample(4))
    assert sample(1, batch[place], sampling, history_of(tokens, 1), Sample(4)) == alone


@given(LOGITS, SAMPLINGS, TOKENS, st.data())
def test_chunks_of_the_history_do_not_matter(
    values: list[float], sampling: Sampling, tokens: list[int], data: st.DataObject
) -> None:
    prompt_tokens = data.draw(st.integers(0, len(tokens)))
    at = data.draw(st.integers(0, len(tokens)))
    chunked = TokenHistory(prompt_tokens)
    chunked.extend(tokens[:at])
    chunked.extend(tokens[at:])
    whole = history_of(tokens, prompt_tokens)
    assert token_of(row_of(values), sampling, chunked) == token_of(row_of(values), sampling, whole)


@given(LOGITS)
def test_logprobs_are_the_log_softmax_of_the_untouched_logits(values: list[float]) -> None:
    logits = row_of(values)
    sampling = Sampling(temperature=3, repetition_penalty=2, logit_bias=((0, 50.0),), seed=1)
    got = sample(1, logits, sampling, history_of([1, 2], 1), Sample(VOCAB))
    exact = [float(x) for x in logits]
    total = max(exact) + math.log(math.fsum(math.exp(x - max(exact)) for x in exact))
    assert got.logprob == pytest.approx(exact[got.token_id] - total, abs=1e-12)
    ranked = sorted(range(VOCAB), key=lambda i: (-exact[i], i))
    assert [entry.token_id for entry in got.top] == ranked
    for entry in got.top:
        assert entry.logprob == pytest.approx(exact[entry.token_id] - total, abs=1e-12)


def test_the_position_is_the_number_of_tokens() -> None:
    assert sample(9, row_of([0, 1]), Sampling(), history_of([0, 1, 1], 1), Sample()).position == 3


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_refused(bad: float, temperature: float) -> None:
    with pytest.raises(NumericsError) as caught:
        token_of(row_of([0, bad, 1]), Sampling(temperature=temperature), history_of([0], 1))
    assert caught.value.code == "numerics.not_finite"
    with pytest.raises(NumericsError):
        score(Row(1, 0, 0, (2,)), row_of([0, bad, 1])[None], Score(1, 1))


def test_score_reports_the_last_positions_of_the_row() -> None:
    logits = np.array([[0, 1, 1], [3, 2, 1]], dtype=np.float32)
    scored = score(Row(4, 0, 10, (7, 8, 9)), logits, Score(last=2, top=2))
    assert [(s.request_id, s.position, s.token_id) for s in scored] == [(4, 11, 8), (4, 12, 9)]
    assert [entry.token_id for entry in scored[0].top] == [1, 2]
    assert [entry.token_id for entry in scored[1].top] == [0, 1]
    assert score(Row(4, 0, 0, (7,)), logits[:1], Score(1, 0))[0].top == ()


def test_score_with_another_number_of_rows_is_our_mistake() -> None:
    with pytest.raises(MisuseError):
        score(Row(4, 0, 0, (7, 8)), np.zeros((1, 3), dtype=np.float32), Score(2, 1))


def test_extreme_but_finite_logits_stay_finite() -> None:
    logits = row_of([3e38, -3e38, 0])
    sampling = Sampling(temperature=0.01, repetition_penalty=100, seed=1)
    got = sample(1, logits, sampling, history_of([0, 1], 1), Sample(3))
    assert got.token_id == 0
    assert all(math.isfinite(entry.logprob) for entry in got.top)
