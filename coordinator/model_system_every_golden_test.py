"""Every golden shape, program, degree and element type, and the long prompts, through `score`.

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


@pytest.mark.parametrize("compute", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "program", "degree"),
    [("deep", "replicated", 2), ("deep", "sharded", 1), ("tp4", "sharded", 4)],
)
def test_long_prompts_are_within_the_gates(
    folders: Folders,
    shape: str,
    program: str,
    degree: int,
    compute: str,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    """4097 and 8192 tokens, prefilled 512 at a time."""
    run = GoldenRun(shape, program, degree, compute)
    sequences = [sequence for sequence, _ in golden_loader.load_long(shape)]
    record_testsuite_property(f"long-{run}", str(gated(folders[shape], run, sequences)))
