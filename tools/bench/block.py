"""`bench block`: the frozen block against torch.distributed gloo, both measured in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.processes import ExecLauncher, Launcher
from coordinator.worker_program import worker_program
from evidence.fork_launcher import ForkLauncher
from tools.bench.block_ours import case_s, manifest, steady_us
from tools.bench.block_peer import Peer
from tools.bench.machine import OtherPrograms
from tools.bench.sample import Sample, table
from worker.main import main as worker

RANKS = (1, 2, 4)
# What issue-sized claims rest on: the largest shape of the evidence.
BATCH, SEQUENCE = 2, 7
CASE_BATCH, CASE_SEQUENCE = 1, 4


@dataclass(frozen=True)
class Plan:
    """rounds: how often ours and the baseline take turns. steps, cases: per turn and rank count."""

    rounds: int
    steps: int
    cases: int
    transport: str


def forked() -> Launcher:
    return ForkLauncher(worker)


def fresh() -> Launcher:
    program = worker_program()
    return ExecLauncher(program.argv, program.env)


def steady(plan: Plan, peer: Peer | None) -> str:
    """A table of block steps on running ranks; microseconds."""
    ours: dict[int, list[float]] = {ranks: [] for ranks in RANKS}
    theirs: dict[int, list[tuple[float, float]]] = {ranks: [] for ranks in RANKS}
    with OtherPrograms() as others:
        for _ in range(plan.rounds):
            for ranks in RANKS:
                run = manifest(ranks, BATCH, SEQUENCE, plan.transport)
                ours[ranks] += steady_us(run, forked(), plan.steps)
            if peer is not None:
                shape = ["--batch", str(BATCH), "--seq", str(SEQUENCE), "--rounds", "1"]
                rows = peer.measure(["steady", *shape, "--iters", str(plan.steps)])
                for row in rows:
                    theirs[row["ranks"]].append((row["us"], row["p10"]))
    rows_out = [_steady_row(ranks, Sample.of(ours[ranks]), theirs[ranks]) for ranks in RANKS]
    head = ["ranks", "ours median us", "p10", "p90", "gloo median us", "p10", "ratio median", "p10"]
    return f"{table(head, rows_out)}\n\nother programs used {others.cores:.2f} cores meanwhile\n"


def _steady_row(ranks: int, ours: Sample, theirs: list[tuple[float, float]]) -> list[str]:
    cells = [str(ranks), f"{ours.median:.0f}", f"{ours.p10:.0f}", f"{ours.p90:.0f}"]
    if not theirs:
        return [*cells, "-", "-", "-", "-"]
    median = Sample.of([median for median, _ in theirs]).median
    p10 = Sample.of([p10 for _, p10 in theirs]).median
    ratios = [f"{median / ours.median:.2f}", f"{p10 / ours.p10:.2f}"]
    return [*cells, f"{median:.0f}", f"{p10:.0f}", *ratios]


def whole_case(plan: Plan, peer: Peer | None, start: str) -> str:
    """A table of whole cases; seconds. start: `exec` for fresh programs, `fork`."""
    launcher: Callable[[], Launcher] = fresh if start == "exec" else forked
    ours: dict[int, list[float]] = {ranks: [] for ranks in RANKS}
    theirs: dict[int, list[float]] = {ranks: [] for ranks in RANKS}
    with OtherPrograms() as others:
        for _ in range(plan.rounds):
            for ranks in RANKS:
                run = manifest(ranks, CASE_BATCH, CASE_SEQUENCE, plan.transport)
                ours[ranks] += [case_s(run, launcher) for _ in range(plan.cases)]
            if peer is not None:
                rows = peer.measure(["case", "--start", start, "--reps", str(plan.cases)])
                for row in rows:
                    theirs[row["ranks"]] += row["all"]
    rows_out = []
    for ranks in RANKS:
        sample = Sample.of(ours[ranks])
        cells = [start, str(ranks), f"{sample.median:.3f}", f"{sample.p10:.3f}"]
        if theirs[ranks]:
            other = Sample.of(theirs[ranks])
            cells += [f"{other.median:.3f}", f"{other.p10:.3f}"]
            cells += [f"{other.median / sample.median:.1f}"]
        else:
            cells += ["-", "-", "-"]
        rows_out.append(cells)
    head = ["start", "ranks", "ours median s", "p10", "gloo median s", "p10", "ratio"]
    return f"{table(head, rows_out)}\n\nother programs used {others.cores:.2f} cores meanwhile\n"
