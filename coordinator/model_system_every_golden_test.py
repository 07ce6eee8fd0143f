"""Every golden shape, program, degree and element type through the real `score` path.

Run by hand (tagged manual): it starts some hundred groups of worker processes. Each case's
differences and regret are in its JUnit XML.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.golden_scores import Folders, GoldenRun, gated
from testdata.golden import golden_loader
from testdata.golden.shapes import SHAPES

RUNS = [
    GoldenRun(shape, program, degree, compute)
    for shape in sorted(SHAPES)
    for program in ("replicated", "sharded")
    for degree in SHAPES[shape].tp_degrees(program)
    for compute in ("float32", "float64")
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_logprobs_are_within_the_gates(
    folders: Folders, run: GoldenRun, record_testsuite_property: Callable[[str, object], None]
) -> None:
    sequences = golden_loader.load_short(run.shape)
    record_testsuite_property(str(run), str(gated(folders[run.shape], run, sequences)))
