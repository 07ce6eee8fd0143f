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
from program.spec import INPUT_PHASE, LOAD_PHASE, RESULT_PHASE, Loading, ProgramSpec
from wire.frame import Buffer, Kind
from wire.limits import FLAG_FOLDED
from wire.link import Link
from wire.metadata import (
    Ack,
    Command,
    Fence,
    JsonValue,
    Load,
    Result,
    Tensor,
    payload_bytes,
)


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
    plan: JsonValue = None
    result: tuple[str, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class RankResult:
    """One rank's RESULT: metadata as read, payload as it came."""

    rank: int
    result: Result
    payload: Buffer


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
        self._links = tuple(links)
        self._deadlines = deadlines
        self._step = 0
        # Metadata depends on (kind, rank, stage, shape) only: encoded once, then sent and compared
        # as bytes.
        self._encoded: dict[tuple[Kind, int, int, tuple[int, ...]], bytes] = {}

    def open(self) -> None:
        """Send ACK to every rank: from here on the session has an epoch and a program."""
        with self._fail_stop():
            for rank, link in enumerate(self._links):
                session = link.connection.session
                session.set_program(self.spec.phases, self.spec.folded)
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
                for index, weight in enumerate(self.spec.weights):
                    shape = weight.local_shape(rank, self.spec.world_size)
                    metadata = self._tensor(
                        Kind.WEIGHT, rank, index, shape, LOAD_PHASE, weight.name
                    )
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

    def run_step(self, step: StepInput) -> list[RankResult]:
        """Run one step on all ranks. No result exists before the last rank's RESULT is accepted.

        Raises PeerError for the first failure, which poisons the group; PoisonedError after that.
        """
        with self._fail_stop():
            self._feed(step)
            self._command(0, step.plan)
            for stage in range(len(self.spec.stages)):
                partials = [
                    self._collect(rank, link, stage, step.shape)
                    for rank, link in enumerate(self._links)
                ]
                dtype = self.spec.partial_dtype.value
                total = reduce_partials(partials, self.agreement.sum_order, dtype)
                self._broadcast(stage, total, step.shape)
            results = self._results(step)
        self._step += 1
        return results

    def close(self) -> None:
        """End every session. In IDLE this is the clean end that workers answer with exit code 0."""
        for link in self._links:
            link.close()

    def stop(self, cause: PeerError) -> None:
        """Poison the group from outside (a dead process, an idle hang-up); keeps the first cause."""
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
        self, link: Link, kind: Kind, metadata: bytes, payload: Buffer = b"", flags: int = 0
    ) -> None:
        deadline = link.pipe.clock() + self._deadlines.send_ms / 1000
        link.send(kind, metadata, payload, flags=flags, deadline=deadline)

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

    def _feed(self, step: StepInput) -> None:
        if step.operand is None:
            return
        for rank, link in enumerate(self._links):
            metadata = self._tensor(Kind.INPUT, rank, 0, step.shape, INPUT_PHASE, "x")
            self._send(link, Kind.INPUT, metadata, step.operand)

    def _command(self, stage: int, plan: JsonValue) -> None:
        for rank, link in enumerate(self._links):
            command = Command(phase=self.spec.phases[stage], plan=plan, rank=rank, step=self._step)
            self._send(link, Kind.COMMAND, command.to_bytes())

    def _collect(self, rank: int, link: Link, stage: int, shape: tuple[int, ...]) -> Buffer:
        """One rank's PARTIAL and, unless folded, its FENCE, under one deadline."""
        phase = self.spec.phases[stage]
        deadline = link.pipe.clock() + self._deadlines.phase_ms / 1000
        metadata = self._tensor(Kind.PARTIAL, rank, stage, shape, phase, f"{phase}.partial")
        size = payload_bytes(shape, self.spec.partial_dtype.value)
        frame = link.receive(metadata, size, deadline=deadline)
        if not self.spec.folded:
            link.receive(self._fence(rank, stage), 0, deadline=deadline)
        return frame.payload

    def _broadcast(self, stage: int, total: Buffer, shape: tuple[int, ...]) -> None:
        phase = self.spec.phases[stage]
        last = stage + 1 == len(self.spec.stages)
        flags = FLAG_FOLDED if self.spec.folded and not last else 0
        for rank, link in enumerate(self._links):
            metadata = self._tensor(Kind.REDUCTION, rank, stage, shape, phase, f"{phase}.total")
            self._send(link, Kind.REDUCTION, metadata, total, flags)
        if not last and not self.spec.folded:
            self._command(stage + 1, None)

    def _result(self, rank: int, link: Link, step: StepInput, first: Buffer | None) -> RankResult:
        """One rank's RESULT. first: rank 0's payload where all ranks must return the same bytes."""
        expected, size = self._agreed_result(rank, step)
        deadline = link.pipe.clock() + self._deadlines.phase_ms / 1000
        frame = link.receive(expected, size, deadline=deadline)
        with _condemning(link):
            result = Result.parse(frame.metadata)
            received = (result.phase, result.rank, result.step, result.dtype)
            agreed = (RESULT_PHASE, rank, self._step, self.spec.partial_dtype.value)
            if received != agreed:
                raise ContractError(
                    "metadata", f"phase, rank, step, dtype are {received}, agreed {agreed}"
                )
            if first is not None and frame.payload != first:
                raise ContractError("ranks_disagree", f"{result.tensor!r} differs from rank 0's")
        return RankResult(rank, result, frame.payload)

    def _agreed_result(self, rank: int, step: StepInput) -> tuple[bytes | None, int | None]:
        """The whole RESULT metadata and payload size where the program predicts them."""
        if step.result is None:
            return None, None
        name, shape = step.result
        dtype = self.spec.partial_dtype.value
        result = Result(
            dtype=dtype,
            phase=RESULT_PHASE,
            rank=rank,
            report=None,
            shape=shape,
            step=self._step,
            tensor=name,
        )
        return result.to_bytes(), payload_bytes(shape, dtype)

    def _results(self, step: StepInput) -> list[RankResult]:
        results: list[RankResult] = []
        for rank, link in enumerate(self._links):
            first = results[0].payload if results and step.result is not None else None
            results.append(self._result(rank, link, step, first))
        return results

    def _fence(self, rank: int, stage: int) -> bytes:
        key = (Kind.FENCE, rank, stage, ())
        encoded = self._encoded.get(key)
        if encoded is None:
            fence = Fence(phase=self.spec.phases[stage], rank=rank, report=None, tensors=1)
            encoded = self._encoded[key] = fence.to_bytes()
        return encoded

    def _tensor(
        self, kind: Kind, rank: int, index: int, shape: tuple[int, ...], phase: str, name: str
    ) -> bytes:
        key = (kind, rank, index, shape)
        encoded = self._encoded.get(key)
        if encoded is None:
            dtype = self.spec.partial_dtype.value
            tensor = Tensor(dtype=dtype, phase=phase, rank=rank, shape=shape, tensor=name)
            encoded = self._encoded[key] = tensor.to_bytes()
        return encoded


@contextmanager
def _condemning(link: Link) -> Iterator[None]:
    """A refusal decided here belongs to the frame just read, and is recorded with it (S12)."""
    try:
        yield
    except ContractError as failure:
        raise link.fail(failure) from None
