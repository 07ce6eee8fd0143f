"""`bench model`: four layers of 4B dimensions against transformers, both in the same run."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from coordinator.machine import visible_machine
from coordinator.model_run import ModelBindings
from coordinator.processes import ExecLauncher
from coordinator.worker_program import worker_program
from errors import ConfigError, TPError
from manifest.run_manifest import RunManifest
from tools.bench.bandwidth import read_bandwidth
from tools.bench.machine import OtherPrograms
from tools.bench.model_ours import PREFILLS, Case, Measured, measure
from tools.bench.roofline import Reader, roofline
from tools.bench.sample import Sample, table
from tools.bench.synthetic import CONFIG, VOCABULARY, WEIGHTS, write_checkpoint

SCRIPT: Final = "bench_hf.py"
PROGRAM: Final = "qwen35/sharded"
CASES: Final = (Case(1, 512, 16), Case(8, 64, 12))
# Bytes of an element as ranks hold it. The baseline holds float32; published checkpoints are
# bfloat16, which ranks hold as it is and widen, exactly, as they multiply in float32.
HELD: Final = {"bfloat16": 2, "float32": 4}
_TIMEOUT_S: Final = 1_800

Ours = Mapping[tuple[int, str], Measured]

# Runs in the baseline's interpreter: the given script's own functions, on the same cases.
_BASELINE: Final = """
import json, sys
sys.path.insert(0, sys.argv[1])
import bench_hf, torch
torch.set_num_threads(int(sys.argv[2]))
model = bench_hf.build(int(sys.argv[3]))
rows = []
for batch, prompt, steps in json.loads(sys.argv[4]):
    rows.append(bench_hf.run(model, int(sys.argv[3]), batch, prompt, steps, int(sys.argv[5])))
print("ROWS" + json.dumps(rows))
"""


@dataclass(frozen=True)
class Baseline:
    """folder: where the baseline script is. python: an interpreter that has transformers."""

    folder: Path
    python: Path

    def check(self) -> None:
        if not (self.folder / SCRIPT).is_file():
            raise ConfigError.single("--hf", self.folder, f"must hold {SCRIPT}")
        if not os.access(self.python, os.X_OK):
            raise ConfigError.single("--hf-python", self.python, "must be an interpreter")

    def rows(self, threads: int) -> list[dict[str, float]]:
        cases = json.dumps([[case.batch, case.prompt, case.steps] for case in CASES])
        argv = [str(self.python), "-c", _BASELINE, str(self.folder), str(threads)]
        ended = subprocess.run(
            [*argv, str(VOCABULARY), cases, str(PREFILLS)],
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env={"PATH": os.environ.get("PATH", ""), "HF_HUB_OFFLINE": "1", "HOME": "/nonexistent"},
        )
        if ended.returncode:
            raise TPError("bench.peer", f"the baseline failed: {ended.stderr[-400:]}")
        rows: list[dict[str, float]] = json.loads(ended.stdout.split("ROWS")[1])
        return rows


def _launcher(manifest: RunManifest) -> ExecLauncher:
    """The workers as every run starts them: the ranks share the processors (docs/adr/0023)."""
    program = worker_program()
    return ExecLauncher(program.argv, program.env)


def model(baseline: Baseline | None, degrees: tuple[int, ...]) -> str:
    """The table, and what every rank held."""
    bindings = ModelBindings(_launcher, visible_machine)
    theirs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="rankproof-bench-") as name, OtherPrograms() as others:
        folder = Path(name)
        write_checkpoint(folder)
        threads = len(os.sched_getaffinity(0))
        # Before and after everybody: other programs share the memory too.
        reads = read_bandwidth(threads)
        if baseline is not None:
            theirs = baseline.rows(threads)
            reads += read_bandwidth(threads)
        ours: dict[tuple[int, str], Measured] = {}
        for tp, held in product(degrees, HELD):
            ours[tp, held] = measure(str(folder), PROGRAM, tp, held, list(CASES), bindings)
            reads += read_bandwidth(threads)
        bandwidth = Sample.of(reads)
        whole = (folder / WEIGHTS).stat().st_size
    rows = [row for key, one in ours.items() for row in _rows(key, one, theirs)]
    head = ["TP", "weights", "what", "ours median s", "p10", "p90"]
    head += ["transformers median s", "min", "ratio"]
    lines = [table(head, rows), ""]
    for (tp, held), measured in ours.items():
        size = ", ".join(f"{size / 2**20:.0f}" for size in measured.weights_bytes)
        peak = ", ".join(f"{size / 2**20:.0f}" for size in measured.peak_rss_bytes)
        lines.append(f"TP{tp}, {held}: weights per rank {size} MiB, peak RSS after load {peak} MiB")
    lines += ["", roofline(bandwidth, threads, _readers(ours, theirs, whole)), ""]
    lines.append(f"other programs used {others.cores:.2f} cores meanwhile")
    return "\n".join(lines) + "\n"


def _readers(ours: Ours, theirs: list[dict[str, float]], whole: int) -> list[Reader]:
    """whole: bytes of all weights, each of which a decode step needs once."""
    (index,) = [index for index, case in enumerate(CASES) if case.batch == 1]
    # Of an embedding, ranks but the primary read single rows.
    looked_up = VOCABULARY * int(str(CONFIG["hidden_size"]))
    readers = [
        Reader(
            f"ours, TP{tp}, {held}",
            sum(measured.weights_bytes) - (tp - 1) * looked_up * HELD[held],
            Sample.of(measured.timings[CASES[index]].decode_s).median,
        )
        for (tp, held), measured in ours.items()
    ]
    if theirs:
        readers.append(
            Reader("transformers, float32", whole, theirs[index]["decode_step_s_median"])
        )
    return readers


def _rows(
    key: tuple[int, str], measured: Measured, theirs: list[dict[str, float]]
) -> list[list[str]]:
    rows = []
    for index, case in enumerate(CASES):
        timing = measured.timings[case]
        other = theirs[index] if theirs else {}
        kinds = [("decode_step_s", f"decode, batch {case.batch}", timing.decode_s)]
        if case.batch == 1:
            kinds.insert(0, ("prefill_s", f"prefill {case.prompt}", timing.prefill_s))
        for field, what, values in kinds:
            sample = Sample.of(values)
            cells = [f"{value:.3f}" for value in (sample.median, sample.p10, sample.p90)]
            compared = ["-", "-", "-"]
            if other:
                median = other[f"{field}_median"]
                compared = [f"{median:.3f}", f"{other[f'{field}_min']:.3f}"]
                compared.append(f"{median / sample.median:.2f}")
            rows.append([str(key[0]), key[1], what, *cells, *compared])
    return rows
