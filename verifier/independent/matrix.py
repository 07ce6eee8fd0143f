"""The matrix of cases (evidence.md E5): names and the parameters that each name stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

RANKS = (1, 2, 4)
SEQUENCES = (1, 2, 4, 7)
BATCHES = (1, 2)
SEEDS = (1, 2, 3, 4)
ORDERS = ("rank", "pairwise")
PHASES = ("attention", "mlp", "result")
FAULT_RANKS, FAULT_BATCH, FAULT_SEQUENCE = 4, 2, 4
EPOCH = 1


@dataclass(frozen=True)
class FaultKind:
    """A row of the fault table: its code, and whether the phase's last frame is the one missing."""

    code: str
    at_last_frame: bool = False

    @property
    def outcome(self) -> str:
        return self.code.split(".")[0]


# In the order of evidence.md's table, which is also the order of rows in the figure.
FAULT_KINDS = {
    "rank_exit": FaultKind("protocol.closed"),
    "truncated_frame": FaultKind("protocol.truncated"),
    "checksum_corruption": FaultKind("protocol.checksum"),
    "stale_epoch": FaultKind("contract.epoch"),
    "duplicate_sequence": FaultKind("contract.sequence"),
    "metadata_mismatch": FaultKind("contract.metadata"),
    "delay": FaultKind("deadline.receive"),
    "cancellation_race": FaultKind("deadline.receive", at_last_frame=True),
}
OUTCOMES = ("contract", "deadline", "ok", "protocol")


@dataclass(frozen=True)
class Fault:
    """What the faulty rank does, and in which phase."""

    kind: str
    phase: str
    rank: int

    def record(self) -> dict[str, str | int]:
        return {"kind": self.kind, "phase": self.phase, "rank": self.rank}


@dataclass(frozen=True)
class Case:
    """One run of the matrix."""

    name: str
    ranks: int
    batch: int
    sequence: int
    seed: int
    sum_order: str
    fault: Fault | None = None

    @property
    def tokens(self) -> int:
        return self.batch * self.sequence

    @property
    def outcome(self) -> str:
        return "ok" if self.fault is None else FAULT_KINDS[self.fault.kind].outcome

    def error(self) -> dict[str, str | int] | None:
        """The `error` that the case's record must have."""
        if self.fault is None:
            return None
        code = FAULT_KINDS[self.fault.kind].code
        return {"code": code, "phase": self.fault.phase, "rank": self.fault.rank}


def clean_cases() -> Iterator[Case]:
    for ranks in RANKS:
        for batch in BATCHES:
            for sequence in SEQUENCES:
                for seed in SEEDS:
                    for order in ORDERS:
                        name = f"clean-r{ranks}-b{batch}-t{sequence}-s{seed}-{order}"
                        yield Case(name, ranks, batch, sequence, seed, order)


def fault_cases() -> Iterator[Case]:
    for kind in FAULT_KINDS:
        for phase in PHASES:
            for seed in SEEDS:
                fault = Fault(kind, phase, seed - 1)
                yield Case(
                    f"fault-{kind}-{phase}-s{seed}",
                    FAULT_RANKS,
                    FAULT_BATCH,
                    FAULT_SEQUENCE,
                    seed,
                    "rank",
                    fault,
                )


def full_matrix() -> dict[str, Case]:
    """The 192 clean and 96 fault cases by name, in the order of `cases.jsonl`."""
    cases = [*clean_cases(), *fault_cases()]
    return {case.name: case for case in sorted(cases, key=lambda case: case.name)}
