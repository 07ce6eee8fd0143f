"""The bytes of a case do not depend on the machine, its settings, or how Python was started.

Here some cases of each kind that take no waiting; //evidence:invariance_whole_test (by hand) does
the same with the whole package.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.compare import explain
from evidence.matrix import BATCHES, RANKS, SEEDS, SEQUENCES
from evidence.package import OUTPUT
from evidence.rebuilding import SETTINGS, rebuild
from evidence.tampering.committed import PACKAGE, committed_files
from tools.python.tiers import mostly_exhaustive

CASE_IDS = (
    "clean-r1-b1-t1-s1-rank",
    "clean-r2-b2-t4-s2-pairwise",
    "clean-r4-b1-t7-s3-rank",
    "clean-r4-b2-t7-s4-pairwise",
    "fault-checksum_corruption-mlp-s2",
    "fault-duplicate_sequence-result-s4",
    "fault-metadata_mismatch-attention-s1",
    "fault-rank_exit-result-s3",
    "fault-truncated_frame-attention-s2",
)


@pytest.mark.parametrize(
    "name",
    mostly_exhaustive(
        SETTINGS, lambda name: name in ("without assertions", "no SIMD beyond the baseline")
    ),
)
def test_the_same_bytes(name: str, tmp_path: Path) -> None:
    rebuild(SETTINGS[name], tmp_path / "out", CASE_IDS)
    rebuilt = {
        path.relative_to(tmp_path / "out").as_posix(): path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    committed = {
        path: data for path, data in committed_files().items() if path.split("/")[1:2] in WANTED
    }
    assert explain(committed, rebuilt) == ""


WANTED = [[case_id] for case_id in CASE_IDS]


def test_pairwise_outputs_do_not_depend_on_the_number_of_ranks() -> None:
    """32 groups of three: 64 comparisons with one rank."""
    compared = 0
    for batch, sequence, seed in ((b, t, s) for b in BATCHES for t in SEQUENCES for s in SEEDS):
        outputs = [
            PACKAGE / "cases" / f"clean-r{r}-b{batch}-t{sequence}-s{seed}-pairwise" / OUTPUT
            for r in RANKS
        ]
        first = outputs[0].read_bytes()
        for other in outputs[1:]:
            assert other.read_bytes() == first
            compared += 1
    assert compared == 64


def test_in_rank_order_four_ranks_differ_by_rounding() -> None:
    """So that the groups above are no triviality."""
    one, four = (
        (PACKAGE / "cases" / f"clean-r{ranks}-b2-t7-s1-rank" / OUTPUT).read_bytes()
        for ranks in (1, 4)
    )
    assert one != four
