"""One group of ranks running one program: open, load, step, close; fail-stop on the first failure.

The group decides what is sent next and demands what must come back; it consumes ranks strictly in
rank order (docs/spec/session.md S6), so what it records is a function of the run and not of timing.
It must not know requests, processes or model maths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from coordinator.reduce import reduce_partials
from errors import ContractError, MisuseError, PeerError, PoisonedError
from program.canonical import digest
from program.spec import LOAD_PHASE, RESULT_PHASE, Loading, ProgramSpec
from wire.agreed import TENSOR_DTYPE, AgreedMetadata
from wire.canonical import JsonValue
from wire.frame import Buffer, Kind
from wire.limits import FLAG_FOLDED
from wire.link import Link
from wire.metadata import Ack, Fence, Load, Result, demand, is_digest


class GroupDeadlines(Protocol):
    """How long the group waits, in milliseconds; each wait is one absolute deadline (S8)."""

    @property
    def load_ms(self) -> int: ...
    @property
    def phase_ms(self) -> int: ...
    @property
    def send_ms(self) -> int: ...


@dataclass(frozen=True)
class Agreement:
    """What the ranks are told in ACK, and how their partials are summed."""

    spec: ProgramSpec
    program_digest: str
    parameters: Mapping[str, JsonValue]
    first_epoch: int
    sum_order: str


@dataclass(frozen=True)
class StepInput:
    """One step: its operand (programs that take INPUT frames) or its plan, and the partials' shape.

    result: name and shape of the tensor that every rank must return with identical bytes; None for
    a program whose ranks return what only they can know (then `RankResult` carries their reports).
    """

    shape: tuple[int, ...]
    operand: Buffer | None = None
    plan: Mapping[str, JsonValue] | None = None
    result: tuple[str, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class RankResult:
    """One rank's RESULT. report: null where the program predicts the whole frame."""

    rank: int
    tensor: str
    shape: tuple[int, ...]
    payload: Buffer
    report: Mapping[str, JsonValue] | None


WeightSource = Callable[[str, int], Buffer]


class Group:
    """links: one per rank, in rank order, all greeted (state GREETED)."""

    def __init__(
        self, agreement: Agreement, links: Sequence[Link], deadlines: GroupDeadlines
    ) -> None:
        if len(links) != agreement.spec.world_size:
            raise MisuseError(f"{len(links)} links for {agreement.spec.world_size} ranks")
        self.agreement = agreement
        self.spec = agreement.spec
        self.poison: PeerError | None = None
        # The sum over ranks; an observer may put itself in between.
        self.reduce: Callable[[Sequence[Buffer], str, str], Buffer] = reduce_partials
        self._links = tuple(links)
        self._deadlines = deadlines
        self._step = 0
        dtype, phases = self.spec.partial_dtype.value, self.spec.phases
        self._agreed = [AgreedMetadata(rank, phases, dtype) for rank in range(len(links))]

    def open(self) -> None:
        """Send ACK to every rank: from here on the session has an epoch and a program."""
        with self._fail_stop():
            for rank, link in enumerate(self._links):
                session = link.connection.session
                session.set_program(self.spec.phases, self.spec.folded, self.spec.planned)
                session.adopt_epoch(self.agreement.first_epoch)
                ack = Ack(
                    parameters=self.agreement.parameters,
                    program=self.spec.name,
                    program_digest=self.agreement.program_digest,
                    rank=rank,
                    world_size=self.spec.world_size,
                )
                self._send(link, Kind.ACK, ack.to_bytes())

    def load_weights(self, source: WeightSource) -> None:
        """Send every rank its slices, in the program's order. source(name, rank) -> payload."""
        if self.spec.loading is not Loading.WIRE:
            raise MisuseError(f"program {self.spec.name} loads from a checkpoint")
        with self._fail_stop():
            for rank, link in enumerate(self._links):
                for weight in self.spec.weights:
                    shape = weight.local_shape(rank, self.spec.world_size)
                    metadata = self._agreed[rank].weight(weight.name, shape).metadata
                    self._send(link, Kind.WEIGHT, metadata, source(weight.name, rank))

    def load_local(
        self, parameters: Callable[[int], Mapping[str, JsonValue]]
    ) -> list[Mapping[str, JsonValue]]:
        """Let every rank read its own slices; returns the ranks' load reports."""
        if self.spec.loading is not Loading.LOCAL:
            raise MisuseError(f"program {self.spec.name} takes WEIGHT frames")
        with self._fail_stop():
            for rank, link in enumerate(self._links):
                load = Load(parameters=parameters(rank), phase=LOAD_PHASE, rank=rank)
                self._send(link, Kind.LOAD, load.to_bytes())
            return [self._load_report(rank, link) for rank, link in enumerate(self._links)]

    def run_step(
        self, step: StepInput, meanwhile: Callable[[], None] = lambda: None
    ) -> list[RankResult]:
        """Run one step on all ranks. No result exists before the last rank's RESULT is accepted.

        meanwhile: called once all ranks compute; what it does keeps none of them waiting.
        Of a program with plans no rank changes its state before all ranks have accepted the plan.
        Raises PeerError for the first failure, which poisons the group; PoisonedError after that.
        """
        if (step.plan is not None, step.operand is None) != (self.spec.planned,) * 2:
            raise MisuseError(f"a step of {self.spec.name} has an operand or a plan, as agreed")
        with self._fail_stop():
            if step.plan is not None:
                self._agree(step.plan)
            self._start(step)
            meanwhile()
            for stage in range(len(self.spec.stages)):
                partials = [
                    self._collect(rank, link, stage, step.shape)
                    for rank, link in enumerate(self._links)
                ]
                dtype = self.spec.partial_dtype.value
                total = self.reduce(partials, self.agreement.sum_order, dtype)
                self._broadcast(stage, total, step.shape)
            results = self._results(step)
        self._step += 1
        return results

    def close(self) -> None:
        """End every session. In IDLE this is the clean end that workers answer with exit code 0."""
        for link in self._links:
            link.close()

    def stop(self, cause: PeerError) -> None:
        """Poison the group from outside (a dead process, a hang-up); the first cause stays."""
        if self.poison is None:
            self.poison = cause
        self.close()

    @contextmanager
    def _fail_stop(self) -> Iterator[None]:
        if self.poison is not None:
            raise PoisonedError(self.poison)
        try:
            yield
        except PeerError as failure:
            self.stop(failure)
            raise

    def _send(
        self,
        link: Link,
        kind: Kind,
        metadata: bytes,
        payload: Buffer = b"",
        flags: int = 0,
        *,
        hold: bool = False,
    ) -> None:
        deadline = link.pipe.clock() + self._deadlines.send_ms / 1000
        link.send(kind, metadata, payload, flags=flags, hold=hold, deadline=deadline)

    def _load_report(self, rank: int, link: Link) -> Mapping[str, JsonValue]:
        deadline = link.pipe.clock() + self._deadlines.load_ms / 1000
        frame = link.receive(deadline=deadline)
        with _condemning(link):
            fence = Fence.parse(frame.metadata)
            if (fence.phase, fence.rank, fence.tensors) != (LOAD_PHASE, rank, 0):
                raise ContractError("metadata", f"load fence is {fence}, agreed rank {rank}")
            if fence.report is None:
                raise ContractError("metadata", "report is null, agreed an object")
        return fence.report

    def _agree(self, plan: Mapping[str, JsonValue]) -> None:
        """To each rank the plan; then every rank's word that it accepts exactly this plan."""
        plan_digest = digest(plan)
        for rank, link in enumerate(self._links):
            self._send(link, Kind.COMMAND, self._agreed[rank].plan(plan, self._step).metadata)
        for rank, link in enumerate(self._links):
            self._plan_fence(rank, link, plan_digest)

    def _plan_fence(self, rank: int, link: Link, plan_digest: str) -> None:
        deadline = link.pipe.clock() + self._deadlines.phase_ms / 1000
        frame = link.receive(deadline=deadline)
        agreed = self._agreed[rank]
        if frame.metadata == agreed.plan_fence(plan_digest).metadata:
            return
        with _condemning(link):
            report = Fence.parse(frame.metadata).report
            received = None if report is None else report.get("plan_digest")
            if is_digest(received):
                # All but the digest must be as agreed.
                demand(frame.metadata, agreed.plan_fence(received).metadata)
                message = f"plan_digest is {received}, the plan sent has {plan_digest}"
                raise ContractError("ranks_disagree", message)
            demand(frame.metadata, agreed.plan_fence(plan_digest).metadata)

    def _start(self, step: StepInput) -> None:
        """To each rank its INPUT, if the program has one, and the COMMAND of the first phase."""
        for rank, link in enumerate(self._links):
            if step.operand is not None:
                metadata = self._agreed[rank].operand(step.shape).metadata
                self._send(link, Kind.INPUT, metadata, step.operand, hold=True)
            self._send(link, Kind.COMMAND, self._agreed[rank].command(0, self._step).metadata)

    def _collect(self, rank: int, link: Link, stage: int, shape: tuple[int, ...]) -> Buffer:
        """One rank's PARTIAL and, unless folded, its FENCE, under one deadline."""
        agreed = self._agreed[rank]
        deadline = link.pipe.clock() + self._deadlines.phase_ms / 1000
        frame = link.receive(*agreed.partial(stage, shape), deadline=deadline)
        if not self.spec.folded:
            link.receive(*agreed.fence(stage), deadline=deadline)
        return frame.payload

    def _broadcast(self, stage: int, total: Buffer, shape: tuple[int, ...]) -> None:
        """To each rank the sum and, unless it is folded into it, the COMMAND of the next phase."""
        last = stage + 1 == len(self.spec.stages)
        commanded = not last and not self.spec.folded
        flags = FLAG_FOLDED if self.spec.folded and not last else 0
        for rank, link in enumerate(self._links):
            agreed = self._agreed[rank]
            metadata = agreed.reduction(stage, shape).metadata
            self._send(link, Kind.REDUCTION, metadata, total, flags, hold=commanded)
            if commanded:
                self._send(link, Kind.COMMAND, agreed.command(stage + 1, self._step).metadata)

    def _result(self, rank: int, link: Link, step: StepInput, first: Buffer | None) -> RankResult:
        """One rank's RESULT. first: rank 0's payload where all ranks must return the same bytes."""
        deadline = link.pipe.clock() + self._deadlines.phase_ms / 1000
        if step.result is not None:
            name, shape = step.result
            agreed = self._agreed[rank].result(name, shape, self._step)
            frame = link.receive(*agreed, deadline=deadline)
            with _condemning(link):
                if first is not None and frame.payload != first:
                    raise ContractError("ranks_disagree", f"{name!r} differs from rank 0's")
            return RankResult(rank, name, shape, frame.payload, None)
        frame = link.receive(deadline=deadline)
        with _condemning(link):
            result = Result.parse(frame.metadata)
            received = (result.phase, result.rank, result.step, result.dtype)
            wanted = (RESULT_PHASE, rank, self._step, TENSOR_DTYPE)
            if received != wanted:
                raise ContractError(
                    "metadata", f"phase, rank, step, dtype are {received}, agreed {wanted}"
                )
        return RankResult(rank, result.tensor, result.shape, frame.payload, result.report)

    def _results(self, step: StepInput) -> list[RankResult]:
        results: list[RankResult] = []
        for rank, link in enumerate(self._links):
            first = results[0].payload if results and step.result is not None else None
            results.append(self._result(rank, link, step, first))
        return results


@contextmanager
def _condemning(link: Link) -> Iterator[None]:
    """A refusal decided here belongs to the frame just read, and is recorded with it (S12)."""
    try:
        yield
    except ContractError as failure:
        raise link.fail(failure) from None
