"""A request has the same bits with any neighbours, as long as a step has at most 32 rows.

The products of such a step are the kernel's (docs/adr/0056-a-kernel-for-few-rows.md); everything
else is computed row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from model import linear
from model.golden_gates import Folders
from model.lockstep import Requests, open_ranks
from model.ops import Array
from program.qwen35 import Variant
from testdata.golden.seeded_checkpoint import tokens
from testdata.golden.shapes import SHAPES

SLOTS = 8
STEPS = 6
PREFILL = 12
# Tokens of each neighbour in a step: nobody, one that decodes, one that prefills, all slots.
Traffic = Callable[[int], tuple[int, ...]]
TRAFFIC: dict[str, Traffic] = {
    "one decodes": lambda step: (1,),
    "one prefills": lambda step: (20 - step,),
    "some come and go": lambda step: ((1, 0, 3), (0, 2, 0), (5, 1, 1))[step % 3],
    "all slots": lambda step: (1,) * (SLOTS - 1) if step else (2,) * (SLOTS - 1),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("golden"))


def ids(shape: str, name: str, count: int) -> npt.NDArray[np.int64]:
    return tokens(5, name, count, SHAPES[shape].vocab)


def logits(folder: Path, shape: str, variant: Variant, degree: int, traffic: Traffic) -> Array:
    """Of the request in slot 0: a prefill, then decode steps, beside other rows."""
    ranks = open_ranks(folder, variant, degree, slots=SLOTS, pages=SLOTS * 12)
    requests = Requests(ranks)
    mine = ids(shape, "mine", PREFILL + STEPS)
    for slot in range(SLOTS):
        requests.admit(slot, 150)
    results = []
    for step in range(STEPS + 1):
        rows = {0: mine[:PREFILL] if step == 0 else mine[PREFILL + step - 1 : PREFILL + step]}
        for slot, count in enumerate(traffic(step), start=1):
            if count:
                rows[slot] = ids(shape, f"neighbour {slot} in {step}", count)
        assert sum(map(len, rows.values())) <= 32
        results.append(requests.run(rows)[0])
    return np.concatenate(results)


@pytest.mark.parametrize(
    ("shape", "degree", "variant"),
    [
        *product(("base", "deep"), (1, 2), Variant),
        *product(("tp4",), (4,), Variant),
    ],
)
def test_neighbours_do_not_change_a_bit(
    folders: Folders, shape: str, degree: int, variant: Variant
) -> None:
    alone = logits(folders[shape], shape, variant, degree, lambda step: ())
    for traffic in TRAFFIC.values():
        found = logits(folders[shape], shape, variant, degree, traffic)
        np.testing.assert_array_equal(found, alone)


def test_products_of_blas_would_change_them(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: without the kernel it does."""
    monkeypatch.setattr(linear, "_FEW_ROWS", 0)
    alone = logits(folders["base"], "base", Variant.SHARDED, 1, lambda step: ())
    found = [logits(folders["base"], "base", Variant.SHARDED, 1, t) for t in TRAFFIC.values()]
    assert any(not np.array_equal(alone, each) for each in found)
    for each in found:
        np.testing.assert_allclose(each, alone, rtol=0, atol=1e-4)
