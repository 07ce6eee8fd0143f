from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from errors import ContractError, MisuseError
from model import linear, qwen35_layers
from model.golden_gates import Folders
from model.lockstep import Lockstep, Requests, open_ranks
from model.ops import Array
from program.artifacts import SampledToken, ScoredPosition
from program.plan import Admit, Move, Release, Row, Sample, Sampling, Score, StepPlan
from program.qwen35 import Variant
from program.spec import Dtype
from testdata.golden.seeded_checkpoint import tokens, write_checkpoint
from testdata.golden.shapes import SHAPES
from tools.python.tiers import mostly_exhaustive

PAGE = 16
PROMPT = 40


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("golden"))


def prompt(shape: str, count: int, name: str = "prompt") -> npt.NDArray[np.int64]:
    return tokens(5, name, count, SHAPES[shape].vocab)


def close(found: Array, expected: Array, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def alone(
    folder: Path,
    token_ids: npt.NDArray[np.int64],
    pieces: list[int],
    *,
    variant: Variant = Variant.SHARDED,
    degree: int = 2,
    compute: Dtype = Dtype.FLOAT64,
    pages: tuple[int, ...] | None = None,
) -> tuple[Array, Lockstep]:
    ranks = open_ranks(folder, variant, degree, compute=compute, pages=24, page_tokens=PAGE)
    requests = Requests(ranks)
    requests.admit(0, len(token_ids), pages)
    return requests.run_pieces(0, token_ids, pieces), ranks


def pieces_of(base: int, budget: int, total: int) -> list[int]:
    """One piece of `base` tokens, then as many of `budget` as are left."""
    left = total - base
    sizes = [base] if base else []
    return [*sizes, *[budget] * (left // budget), *([left % budget] if left % budget else [])]


# --- chunked prefill --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base", mostly_exhaustive([0, 1, 5, PAGE, 17], lambda base: base in (0, 5))
)
@pytest.mark.parametrize(
    "budget",
    mostly_exhaustive(
        [1, 2, 3, 4, PAGE - 1, PAGE, PAGE + 1, PROMPT - 1, PROMPT],
        lambda budget: budget in (1, 3, PAGE, PROMPT),
    ),
)
@pytest.mark.parametrize("variant", list(Variant))
def test_any_budget_from_any_base_equals_one_chunk(
    folders: Folders, variant: Variant, budget: int, base: int
) -> None:
    """The kernel of base is 4, so 3 and 4 are kernel - 1 and kernel."""
    ids = prompt("base", PROMPT)
    whole, left = alone(folders["base"], ids, [PROMPT], variant=variant)
    cut, other = alone(folders["base"], ids, pieces_of(base, budget, PROMPT), variant=variant)
    close(cut, whole)
    for one, two in zip(left.executors, other.executors, strict=True):
        close(one.state.recurrent, two.state.recurrent)
        close(one.state.conv, two.state.conv)


@pytest.mark.exhaustive
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shape=st.sampled_from(["conv2", "full_first", "tp4"]),
    cuts=st.lists(st.integers(1, 149), max_size=5),
)
def test_long_prompts_in_any_pieces(folders: Folders, shape: str, cuts: list[int]) -> None:
    ids = prompt(shape, 150)
    edges = [0, *sorted(set(cuts)), 150]
    pieces = [stop - start for start, stop in pairwise(edges)]
    close(alone(folders[shape], ids, pieces)[0], alone(folders[shape], ids, [150])[0])


@pytest.mark.parametrize("pattern", ["LL", "FF"])
def test_models_of_one_kind_of_layer(tmp_path: Path, pattern: str) -> None:
    write_checkpoint(tmp_path, replace(SHAPES["base"], pattern=pattern), 1)
    ids = prompt("base", 70)
    whole, ranks = alone(tmp_path, ids, [70], degree=1)
    assert (ranks.primary.state.recurrent.size == 0) == (pattern == "FF")
    assert (ranks.primary.state.keys.size == 0) == (pattern == "LL")
    close(alone(tmp_path, ids, [64, 1, 5])[0], whole)


def test_where_pages_lie_does_not_change_a_bit(folders: Folders) -> None:
    ids = prompt("base", 100)
    count = ceil(100 / PAGE)
    results = [
        alone(folders["base"], ids, [70, 30], compute=Dtype.FLOAT32, pages=pages)[0]
        for pages in (None, tuple(range(9, 9 + count)), tuple(range(0, 3 * count, 3)))
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize(
    ("counts", "compute", "tolerance"),
    [((20, 4), Dtype.FLOAT32, 0.0), ((80, 32), Dtype.FLOAT64, 1e-10)],
    ids=["few rows", "many rows"],
)
def test_threads_share_work_and_change_nothing(
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
    counts: tuple[int, int],
    compute: Dtype,
    tolerance: float,
) -> None:
    """Bit by bit in float32 up to 32 rows, which the kernel multiplies; else to rounding."""
    monkeypatch.setattr(linear, "_SHARED_BYTES_MIN", 0)
    monkeypatch.setattr(qwen35_layers, "_SHARED_ELEMENTS_MIN", 0)
    ids = [prompt("tp4", count + 5, f"request {count}") for count in counts]
    results = []
    for threads in (1, 2, 3):
        ranks = open_ranks(
            folders["tp4"],
            Variant.SHARDED,
            2,
            compute=compute,
            slots=2,
            pages=9,
            threads=threads,
        )
        requests = Requests(ranks)
        for slot in (0, 1):
            requests.admit(slot, len(ids[slot]))
        first = requests.run({slot: ids[slot][: counts[slot]] for slot in (0, 1)})
        second = requests.run({slot: ids[slot][counts[slot] :] for slot in (0, 1)})
        results.append([part[slot] for part in (first, second) for slot in (0, 1)])
    for result in results[1:]:
        for found, expected in zip(result, results[0], strict=True):
            close(found, expected, tolerance)


# --- ranks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", list(Variant))
def test_degrees_agree_and_a_repeated_run_is_identical(folders: Folders, variant: Variant) -> None:
    ids = prompt("tp4", 90)
    pieces = [60, 1, 29]
    single, _ = alone(folders["tp4"], ids, pieces, variant=variant, degree=1, compute=Dtype.FLOAT32)
    for degree in (1, 2, 4):
        runs = [
            alone(
                folders["tp4"], ids, pieces, variant=variant, degree=degree, compute=Dtype.FLOAT32
            )
            for _ in range(2)
        ]
        np.testing.assert_array_equal(runs[0][0], runs[1][0])
        assert runs[0][1].outcome == runs[1][1].outcome
        close(runs[0][0], single, 2e-3)
        double, _ = alone(folders["tp4"], ids, pieces, variant=variant, degree=degree)
        close(double, alone(folders["tp4"], ids, pieces, degree=1)[0], 1e-10)


def test_one_sum_per_stage_and_no_other(folders: Folders) -> None:
    """Six layers, two of them full attention: 12 sums when all is sharded, 8 when not."""
    ids = prompt("tp4", 9)
    for variant, count in ((Variant.SHARDED, 12), (Variant.REPLICATED, 8)):
        _, ranks = alone(folders["tp4"], ids, [5, 1, 3], variant=variant)
        assert ranks.partials == [[(tokens_count, 64)] * count for tokens_count in (5, 1, 3)]


# --- many requests ----------------------------------------------------------------------------


def test_requests_side_by_side_do_not_meet(folders: Folders) -> None:
    """Prefill, decode and idle requests mixed in every step equal the same requests alone."""
    ids = [prompt("base", count, f"request {count}") for count in (30, 47, 70)]
    ranks = open_ranks(
        folders["base"], Variant.SHARDED, 2, compute=Dtype.FLOAT64, slots=3, pages=10
    )
    requests = Requests(ranks)
    for slot, request in enumerate(ids):
        requests.admit(slot, len(request))
    schedule = [(30, 5, 0), (0, 1, 64), (0, 1, 1), (0, 40, 5)]
    found: list[list[Array]] = [[], [], []]
    done = [0, 0, 0]
    for step in schedule:
        chunk = {s: ids[s][done[s] : done[s] + count] for s, count in enumerate(step)}
        for slot, part in requests.run(chunk).items():
            found[slot].append(part)
        done = [before + count for before, count in zip(done, step, strict=True)]
    for slot, request in enumerate(ids):
        expected, _ = alone(folders["base"], request, [len(request)])
        close(np.concatenate(found[slot]), expected[: done[slot]])


def test_rows_without_tokens_leave_every_byte_of_their_state(folders: Folders) -> None:
    ranks = open_ranks(folders["base"], Variant.SHARDED, 2, slots=3, pages=10)
    requests = Requests(ranks)
    for slot in range(3):
        requests.admit(slot, 40)
    requests.run({slot: prompt("base", 20) for slot in range(3)})

    def held(slot: int) -> list[bytes]:
        pages = slice(slot * 48, slot * 48 + 48)
        return [
            array.tobytes()
            for executor in ranks.executors
            for array in (
                executor.state.recurrent[:, slot],
                executor.state.conv[:, slot],
                executor.state.keys[:, :, pages],
                executor.state.values[:, :, pages],
            )
        ]

    idle, absent, busy = held(0), held(2), held(1)
    requests.run({0: [], 1: [3, 4]})
    assert held(0) == idle
    assert held(2) == absent
    assert held(1) != busy
    requests.run({0: []})
    assert held(0) == idle


def test_a_moved_request_goes_on_as_if_it_had_stayed(folders: Folders) -> None:
    ids = [int(token) for token in prompt("base", 40)]
    expected, _ = alone(folders["base"], np.array(ids), [25, 15])
    ranks = open_ranks(
        folders["base"], Variant.SHARDED, 2, compute=Dtype.FLOAT64, slots=3, pages=10
    )
    admit = Admit(2, 7, 1, (4, 5, 9), 40, 40, None)
    ranks.step(StepPlan(0, admissions=(admit,), rows=(Row(7, 2, 0, tuple(ids[:25])),)))
    row = Row(7, 0, 25, tuple(ids[25:]))
    ranks.step(StepPlan(1, moves=(Move(2, 0, 7),), rows=(row,)))
    close(ranks.logits(row), expected[25:])
    assert np.isnan(ranks.primary.state.recurrent[:, 2]).all()


def test_an_empty_plan_is_a_step_of_zeros(folders: Folders) -> None:
    ranks = open_ranks(folders["base"], Variant.SHARDED, 2, slots=1, pages=3)
    first = ranks.step(StepPlan(0))
    assert ranks.partials == [[(1, 64)] * 8]
    assert first.artifacts == ()
    ranks.step(StepPlan(1, admissions=(Admit(0, 7, 1, (0,), 4, 4, None),)))
    second = ranks.step(StepPlan(2, releases=(Release(0, 7, 1),)))
    assert second == first


def test_a_refused_plan_changes_nothing(folders: Folders) -> None:
    ranks = open_ranks(folders["base"], Variant.SHARDED, 1, slots=1, pages=3)
    ranks.step(StepPlan(0, admissions=(Admit(0, 7, 1, (0, 1), 20, 20, None),)))
    for wrong in (
        StepPlan(1, rows=(Row(8, 0, 0, (1,)),)),
        StepPlan(1, rows=(Row(7, 0, 1, (1,)),)),
        StepPlan(1, rows=(Row(7, 0, 0, (96,)),)),
        StepPlan(0, rows=(Row(7, 0, 0, (1,)),)),
        StepPlan(1, releases=(Release(0, 8, 1),)),
    ):
        with pytest.raises(ContractError):
            ranks.primary.begin(wrong)
    assert not ranks.primary.state.recurrent[:, 0].any()
    ranks.step(StepPlan(1, rows=(Row(7, 0, 0, (1,)),)))


# --- artifacts --------------------------------------------------------------------------------


def test_the_primary_samples_and_scores_what_rows_want(folders: Folders) -> None:
    ids = tuple(int(token) for token in prompt("base", 40))
    ranks = open_ranks(folders["base"], Variant.SHARDED, 2, slots=2, pages=6)
    rows = (
        Row(7, 0, 0, ids, Sample(logprobs=2)),
        Row(8, 1, 0, ids, Score(last=35, top=3)),
    )
    outcome = ranks.step(
        StepPlan(
            0,
            admissions=(
                Admit(0, 7, 1, (0, 1, 2), 40, 45, Sampling()),
                Admit(1, 8, 2, (3, 4, 5), 40, 45, None),
            ),
            rows=rows,
        )
    )
    logits = ranks.logits(rows[0]).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    sampled, *scored = outcome.artifacts
    assert isinstance(sampled, SampledToken)
    assert sampled.token_id == int(logits[-1].argmax())
    assert sampled.position == 40
    assert sampled.logprob == pytest.approx(logprobs[-1].max(), abs=1e-5)
    assert len(scored) == 35
    for offset, found in enumerate(scored):
        assert isinstance(found, ScoredPosition)
        position = 5 + offset
        assert (found.position, found.token_id) == (position, ids[position])
        best = np.argsort(-logprobs[position], kind="stable")[:3]
        assert [entry.token_id for entry in found.top] == list(best)
        close(np.array([entry.logprob for entry in found.top]), logprobs[position][best], 1e-5)


def test_a_sampled_token_fed_back_continues_the_request(folders: Folders) -> None:
    """Three greedy tokens one by one are those of one scored run over prompt and continuation."""
    ids = [int(token) for token in prompt("base", 10)]
    ranks = open_ranks(folders["base"], Variant.SHARDED, 2, slots=1, pages=1)
    admit = Admit(0, 7, 1, (0,), 10, 12, Sampling())
    start, feed, generated = 0, tuple(ids), []
    for step in range(3):
        admissions = (admit,) if step == 0 else ()
        row = Row(7, 0, start, feed, Sample())
        (token,) = ranks.step(StepPlan(step, admissions=admissions, rows=(row,))).artifacts
        assert isinstance(token, SampledToken)
        start += len(feed)
        feed = (token.token_id,)
        generated.append(token.token_id)
    logits, _ = alone(folders["base"], np.array(ids + generated[:2]), [12], compute=Dtype.FLOAT32)
    assert list(logits[9:].argmax(axis=1)) == generated


def test_only_the_primary_computes_logits(folders: Folders) -> None:
    _, ranks = alone(folders["base"], prompt("base", 4), [4])
    row = Row(1000, 0, 0, (1, 2, 3, 4))
    assert ranks.executors[0].logits(row, 1, 3).shape == (2, 96)
    with pytest.raises(MisuseError):
        ranks.executors[1].logits(row, 0, 1)


def test_a_total_of_another_shape_or_type_is_our_own_mistake(folders: Folders) -> None:
    ranks = open_ranks(folders["base"], Variant.SHARDED, 1)
    ranks.primary.begin(StepPlan(0))
    for total in (np.zeros((2, 64), np.float32), np.zeros((1, 64))):
        with pytest.raises(MisuseError):
            ranks.primary.reduced(0, total)
