"""All ranks of a Qwen3.5 program in one process, stepped in lock-step: the harness of model tests.

What the coordinator does over processes is here one loop: begin on every rank, then for each stage
the ranks' partials in rank order, their sum, the sum to every rank; then finish. Digests must
agree. Frames, deadlines and failures are not here; they are tested where they live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from errors import MisuseError
from model.crew import Crew
from model.ops import Array
from model.qwen35 import Qwen35Executor, StepOutcome
from model.qwen35_weights import LoadReport, load_weights
from program.checkpoint import open_checkpoint
from program.plan import Admit, PlanLimits, Release, Row, StepPlan, pages_needed
from program.qwen35 import Qwen35Config, Variant, qwen35_program
from program.qwen35_config import read_config
from program.qwen35_memory import WeightsDtype
from program.spec import Dtype, ProgramSpec

TokenIds = Sequence[int] | npt.NDArray[np.int64]


@dataclass
class Lockstep:
    """executors: one per rank. partials: shape of every partial that was summed, by step."""

    config: Qwen35Config
    program: ProgramSpec
    limits: PlanLimits
    executors: list[Qwen35Executor]
    reports: list[LoadReport]
    partials: list[list[tuple[int, ...]]] = field(default_factory=list)
    outcome: StepOutcome | None = None

    @property
    def primary(self) -> Qwen35Executor:
        return self.executors[0]

    def step(self, plan: StepPlan) -> StepOutcome:
        """One step of every rank; the primary's outcome."""
        shapes = [executor.begin(plan) for executor in self.executors]
        self.partials.append([])
        for stage in range(self.primary.stage_count):
            total = np.zeros(shapes[0], self.program.partial_dtype.value)
            for executor in self.executors:
                partial = executor.partial(stage)
                total += partial
            self.partials[-1].append(total.shape)
            for executor in self.executors:
                executor.reduced(stage, total)
        outcomes = [executor.finish() for executor in self.executors]
        if len({(outcome.state_digest, outcome.hidden_digest) for outcome in outcomes}) != 1:
            raise MisuseError("the ranks' digests differ")
        if any(outcome.artifacts for outcome in outcomes[1:]):
            raise MisuseError("only the primary rank may have artifacts")
        self.outcome = outcomes[0]
        return outcomes[0]

    def logits(self, row: Row) -> Array:
        """Logits after every token of a row of the last step: [tokens, vocab]."""
        return self.primary.logits(row, 0, len(row.token_ids))


def open_ranks(
    folder: Path,
    variant: Variant,
    world_size: int,
    *,
    compute: Dtype = Dtype.FLOAT32,
    weights_dtype: WeightsDtype = WeightsDtype.AUTO,
    slots: int = 1,
    pages: int = 64,
    page_tokens: int = 16,
    tokens_per_step: int = 4096,
    threads: int = 1,
) -> Lockstep:
    """Load every rank of a program from a checkpoint folder, with memory of nobody set to NaN."""
    config = read_config(folder)
    program = qwen35_program(config, variant, world_size, compute)
    checkpoint = open_checkpoint(folder, program.weights)
    limits = PlanLimits(
        vocab_size=config.vocab_size,
        context_tokens=config.max_position_embeddings,
        slots=slots,
        pages=pages,
        page_tokens=page_tokens,
        tokens_per_step=tokens_per_step,
    )
    executors, reports = [], []
    crew = Crew(threads)
    for rank in range(world_size):
        weights, report = load_weights(
            config, program, checkpoint, rank, weights_dtype=weights_dtype, crew=crew
        )
        executor = Qwen35Executor(config, program, weights, limits, crew=crew, poison=True)
        executors.append(executor)
        reports.append(report)
    return Lockstep(config, program, limits, executors, reports)


class Requests:
    """Several requests on one lock-step group: plans made by hand, pages dealt in order."""

    def __init__(self, ranks: Lockstep) -> None:
        self.ranks = ranks
        self._step = 0
        self._admissions = 0
        self._free_page = 0
        self._admitted: dict[int, Admit] = {}
        self._position: dict[int, int] = {}
        self._pending: list[Admit] = []
        self._leaving: list[Release] = []

    def admit(self, slot: int, tokens_max: int, pages: tuple[int, ...] | None = None) -> None:
        """A request named after its slot enters with the next step."""
        self._admissions += 1
        if pages is None:
            count = pages_needed(tokens_max, self.ranks.limits.page_tokens)
            pages = tuple(range(self._free_page, self._free_page + count))
            self._free_page += count
        admit = Admit(slot, 1000 + slot, self._admissions, pages, tokens_max, tokens_max, None)
        self._pending.append(admit)
        self._admitted[slot] = admit
        self._position[slot] = 0

    def release(self, slot: int) -> None:
        """The request leaves with the next step."""
        admit = self._admitted.pop(slot)
        self._leaving.append(Release(slot, admit.request_id, admit.generation))

    def run(self, tokens: Mapping[int, TokenIds]) -> dict[int, Array]:
        """One step with these tokens by slot; the logits after each of them by slot."""
        rows = tuple(
            Row(1000 + slot, slot, self._position[slot], tuple(int(t) for t in tokens[slot]))
            for slot in sorted(tokens)
        )
        plan = StepPlan(self._step, tuple(self._leaving), tuple(self._pending), (), rows)
        self._pending, self._leaving = [], []
        self.ranks.step(plan)
        self._step += 1
        for row in rows:
            self._position[row.slot] += len(row.token_ids)
        return {row.slot: self.ranks.logits(row) for row in rows if row.token_ids}

    def run_pieces(self, slot: int, token_ids: TokenIds, pieces: Sequence[int]) -> Array:
        """One request alone, cut into pieces: logits after every token [tokens, vocab]."""
        results, start = [], 0
        for piece in pieces:
            results.append(self.run({slot: token_ids[start : start + piece]})[slot])
            start += piece
        return np.concatenate(results)
