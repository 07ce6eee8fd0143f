"""The 288 cases: which runs the evidence consists of (docs/spec/evidence.md E5).

Pure values; how a case is run is evidence/runner.py's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from errors import ConfigError
from program.block import ATTENTION_PHASE, MLP_PHASE
from program.spec import RESULT_PHASE

RANKS: Final = (1, 2, 4)
SEQUENCES: Final = (1, 2, 4, 7)
BATCHES: Final = (1, 2)
SEEDS: Final = (1, 2, 3, 4)
SUM_ORDERS: Final = ("pairwise", "rank")
FAULT_PHASES: Final = (ATTENTION_PHASE, MLP_PHASE, RESULT_PHASE)
# In the order of the table in docs/spec/evidence.md, with the code each must end in.
FAULT_CODES: Final = {
    "rank_exit": "protocol.closed",
    "truncated_frame": "protocol.truncated",
    "checksum_corruption": "protocol.checksum",
    "stale_epoch": "contract.epoch",
    "duplicate_sequence": "contract.sequence",
    "metadata_mismatch": "contract.metadata",
    "delay": "deadline.receive",
    "cancellation_race": "deadline.receive",
}
FAULT_RANKS, FAULT_BATCH, FAULT_SEQUENCE, FAULT_ORDER = 4, 2, 4, "rank"
FIRST_EPOCH: Final = 1


@dataclass(frozen=True)
class CaseFault:
    """What `rank` does wrong in `phase`."""

    kind: str
    phase: str
    rank: int


@dataclass(frozen=True)
class Case:
    """One run of the evidence."""

    case_id: str
    ranks: int
    batch: int
    sequence: int
    seed: int
    sum_order: str
    fault: CaseFault | None = None

    @property
    def is_clean(self) -> bool:
        return self.fault is None


def _clean_cases() -> list[Case]:
    return [
        Case(f"clean-r{r}-b{b}-t{t}-s{s}-{order}", r, b, t, s, order)
        for r in RANKS
        for b in BATCHES
        for t in SEQUENCES
        for s in SEEDS
        for order in SUM_ORDERS
    ]


def _fault_cases() -> list[Case]:
    return [
        Case(
            f"fault-{kind}-{phase}-s{seed}",
            FAULT_RANKS,
            FAULT_BATCH,
            FAULT_SEQUENCE,
            seed,
            FAULT_ORDER,
            CaseFault(kind, phase, seed - 1),
        )
        for kind in FAULT_CODES
        for phase in FAULT_PHASES
        for seed in SEEDS
    ]


def all_cases() -> tuple[Case, ...]:
    """The whole matrix, sorted by case id."""
    return tuple(sorted([*_clean_cases(), *_fault_cases()], key=lambda case: case.case_id))


def select(case_ids: list[str]) -> tuple[Case, ...]:
    """The named cases (all of them when none is named), sorted. Raises ConfigError."""
    cases = {case.case_id: case for case in all_cases()}
    for case_id in case_ids:
        if case_id not in cases:
            raise ConfigError.single("--only", case_id, "must be one of the 288 case ids")
    return tuple(cases[case_id] for case_id in sorted(set(case_ids) or cases))
