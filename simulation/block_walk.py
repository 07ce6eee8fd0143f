"""A random walk over sessions of the block: any shape, any cut, any fault, several steps.

A seed decides all of it. After every step the invariants below are looked at; `BrokenInvariant`
says which one does not hold, and the seed tells the walk again.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

from errors import MisuseError, PeerError, PoisonedError
from manifest.run_manifest import from_flags
from simulation.block_simulation import BlockSimulation, Cuts, whole_cuts
from simulation.delivery import byte_by_byte, seeded_cuts
from simulation.faults import Fault, FaultKind
from wire.frame import Kind
from wire.ledger import SEND, Entry, read_ledger
from wire.session import State
from wire.tape import read_tape

PHASES: Final = ("attention", "mlp", "result")
STEPS_MAX: Final = 4
PHASE_MS: Final = 1_000
# The class of S7 that each fault belongs to.
FAMILIES: Final = {
    FaultKind.RANK_EXIT: "protocol",
    FaultKind.TRUNCATED_FRAME: "protocol",
    FaultKind.CHECKSUM_CORRUPTION: "protocol",
    FaultKind.STALE_EPOCH: "contract",
    FaultKind.DUPLICATE_SEQUENCE: "contract",
    FaultKind.METADATA_MISMATCH: "contract",
    FaultKind.DELAY: "deadline",
    FaultKind.CANCELLATION_RACE: "deadline",
}
# Entries of a clean step for each rank: input, 2 commands, 2 partials, 2 fences, 2 totals, result.
STEP_ENTRIES: Final = 10


class BrokenInvariant(Exception):
    """A rule that every session must keep does not hold."""


@dataclass(frozen=True)
class Plan:
    """What a seed decides. fault_step: the step, from 0, in which `fault` strikes."""

    ranks: int
    batch: int
    sequence: int
    seed: int
    sum_order: str
    first_epoch: int
    steps: int
    cuts: str
    fault: Fault | None
    faulty_rank: int
    fault_step: int


def plan_of(seed: int) -> Plan:
    """The walk that a seed stands for."""
    source = random.Random(seed)
    ranks, steps = source.choice((1, 2, 4)), source.randint(1, STEPS_MAX)
    first_epoch = source.choice((1, 2, 1 << 20, 1 << 52))
    fault_step = source.randrange(steps)
    fault = None
    # Dealt out, not drawn, so that a hundred seeds in a row have every fault.
    kind, phase = list(FaultKind)[seed % 8], PHASES[seed // 8 % 3]
    if source.random() < 0.8:
        fault = Fault(kind, phase, ranks, first_epoch + fault_step)
    cuts = source.choice(("whole", "bytes", "cuts"))
    # Every byte by itself costs; a short operand shows as much.
    batch, sequence = (1, 1) if cuts == "bytes" else (source.randint(1, 2), source.randint(1, 5))
    return Plan(
        ranks=ranks,
        batch=batch,
        sequence=sequence,
        seed=source.randrange(1 << 53),
        sum_order=source.choice(("rank", "pairwise")),
        first_epoch=first_epoch,
        steps=steps,
        cuts=cuts,
        fault=fault,
        faulty_rank=source.randrange(ranks),
        fault_step=fault_step,
    )


def simulation_of(plan: Plan) -> BlockSimulation:
    """The session of a plan, not yet opened."""
    cuts: dict[str, Cuts] = {
        "whole": whole_cuts,
        "bytes": lambda: byte_by_byte,
        "cuts": lambda: seeded_cuts(plan.seed),
    }
    manifest = from_flags(
        {
            "ranks": str(plan.ranks),
            "batch": str(plan.batch),
            "sequence": str(plan.sequence),
            "seed": str(plan.seed),
            "sum_order": plan.sum_order,
            "epoch": str(plan.first_epoch),
            "deadlines.phase_ms": str(PHASE_MS),
        }
    )
    faults = {plan.faulty_rank: plan.fault} if plan.fault else {}
    return BlockSimulation(manifest, faults, cuts[plan.cuts])


def walk(seed: int) -> Plan:
    """Walk once; returns what was walked. Raises BrokenInvariant."""
    plan = plan_of(seed)
    simulation = simulation_of(plan)
    simulation.open()
    outputs: set[bytes] = set()
    for step in range(plan.steps):
        faulty = plan.fault is not None and step == plan.fault_step
        entries = len(simulation.recorder.entries())
        try:
            output = simulation.step()
        except PeerError as failure:
            _demand(faulty, f"step {step} failed without a fault: {failure.diagnostics()}")
            _check_failure(plan, simulation, failure)
            _check_poison(simulation, failure)
            break
        _demand(not faulty, f"step {step} has an output in spite of its fault")
        outputs.add(output)
        grown = len(simulation.recorder.entries()) - entries
        _demand(grown == STEP_ENTRIES * plan.ranks, f"a step of {grown} entries")
        _check_records(plan, simulation)
    _demand(len(outputs) <= 1, "equal steps have different outputs")
    simulation.close()
    _check_ends(plan, simulation)
    return plan


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenInvariant(what)


def _check_failure(plan: Plan, simulation: BlockSimulation, failure: PeerError) -> None:
    """The failure is that of the fault: class, rank and phase; time passed only for a deadline."""
    fault = plan.fault
    if fault is None:
        raise BrokenInvariant("a failure without a fault")
    found = (failure.family, failure.rank, failure.phase)
    wanted = (FAMILIES[fault.kind], plan.faulty_rank, fault.phase)
    _demand(found == wanted, f"{fault.kind} gives {found}, must give {wanted}")
    waited = PHASE_MS / 1000 if failure.family == "deadline" else 0.0
    _demand(simulation.clock.now() == waited, f"{simulation.clock.now()} s passed, not {waited}")
    _check_records(plan, simulation)


def _check_poison(simulation: BlockSimulation, failure: PeerError) -> None:
    """Nothing runs after the first failure, which stays, and nothing more is recorded."""
    before = simulation.recorder.ledger()
    for _ in range(2):
        try:
            simulation.step()
        except PoisonedError as refusal:
            _demand(refusal.cause is failure, "the first failure was replaced")
        except MisuseError as misuse:
            raise BrokenInvariant(f"a step was begun after a failure: {misuse}") from None
        else:
            raise BrokenInvariant("an output after a failure")
    _demand(simulation.recorder.ledger() == before, "frames after a failure")


def _check_records(plan: Plan, simulation: BlockSimulation) -> None:
    """Ledger and tape are legal: S3, S4, S12 and S13, whatever happened."""
    ledger, tape = simulation.recorder.ledger(), simulation.recorder.tape()
    entries, records = read_ledger(ledger), read_tape(tape)
    _demand(len(entries) == len(records), "the tape has not one record per entry")
    numbers: Counter[tuple[int, str]] = Counter()
    for entry, record in zip(entries, records, strict=True):
        _demand(entry.rank == record.rank < plan.ranks, "a rank that does not exist")
        if entry.error is not None:
            _demand(entry is entries[-1], "entries after the failing one")
            continue
        _check_entry(plan, entry, numbers[entry.rank, entry.direction])
        numbers[entry.rank, entry.direction] += 1
    kinds = Counter((entry.rank, entry.kind) for entry in entries if entry.error is None)
    for rank in range(plan.ranks):
        results, totals = kinds[rank, Kind.RESULT.name], kinds[rank, Kind.REDUCTION.name]
        _demand(2 * results <= totals, "a result without its two sums")
        partials = kinds[rank, Kind.PARTIAL.name]
        _demand(totals <= partials, "a sum without this rank's partial")


def _check_entry(plan: Plan, entry: Entry, number: int) -> None:
    _demand(entry.sequence == number, f"entry {entry.index}: sequence {entry.sequence}")
    _demand(entry.state in State.__members__, f"entry {entry.index}: state {entry.state}")
    in_session = entry.kind != Kind.HELLO.name
    lowest, highest = (plan.first_epoch, plan.first_epoch + plan.steps) if in_session else (0, 1)
    epoch = -1 if entry.epoch is None else entry.epoch
    _demand(lowest <= epoch < highest, f"entry {entry.index}: epoch {entry.epoch}")
    sent_by_worker = entry.kind in {k.name for k in Kind if k.sender.value == "worker"}
    _demand((entry.direction == SEND) is not sent_by_worker, f"entry {entry.index}: wrong sender")


def _check_ends(plan: Plan, simulation: BlockSimulation) -> None:
    """Every worker has ended, and a healthy one with nothing worse than the end of its stream."""
    for rank, worker in enumerate(simulation.workers):
        _demand(worker.ended or worker.output.silent, f"rank {rank} is left")
        code = worker.failure.code if worker.failure else None
        clean = plan.fault is None
        _demand(code in ({None} if clean else {None, "protocol.closed"}), f"rank {rank}: {code}")
