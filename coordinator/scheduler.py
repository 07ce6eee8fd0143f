"""Which requests exist and what happens to them: submit, end, plan, commit, poison.

A sans-IO core: values in, plans and updates out; no frames, no time, no ranks. One step is in
flight at most: `plan` hands it out, `commit` takes the result every rank agreed on. Between the two
a client may leave; its token of that step is then never published. A request is published as
finished only by the commit of the plan that carried its release. Clauses: docs/spec/plan.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from coordinator.admission import refusal
from coordinator.composer import Composed, Running, Waiting, compose, turn_of
from coordinator.request import (
    Finished,
    RequestEvent,
    RequestLife,
    RequestState,
    Token,
    Update,
)
from coordinator.step_result import StepResult, match_artifacts
from coordinator.submission import Submission
from errors import ConfigError, MisuseError, PeerError, PoisonedError, TPError
from program.artifacts import SampledToken
from program.plan import PlanLimits, StepPlan
from program.slots import SlotTable

# What a front end may report about a request; STOP is a stop string found in its text.
CLIENT_EVENTS = frozenset(
    {RequestEvent.STOP, RequestEvent.CANCEL, RequestEvent.DISCONNECT, RequestEvent.DROP}
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Read-only view for whoever looks. in_flight: the step that is running, or None.

    waiting: ids by arrival; submissions: what these requests asked for, in the same order.
    """

    table: SlotTable
    in_flight: int | None
    waiting: tuple[int, ...]
    states: tuple[tuple[int, RequestState], ...]
    submissions: tuple[Submission, ...] = ()


class _Request:
    """A live request. running: what the composer reads of it."""

    def __init__(self, request_id: int, submission: Submission) -> None:
        self.request_id = request_id
        self.submission = submission
        self.life = RequestLife()
        self.tokens = list(submission.prompt_token_ids)
        self.prompt_tokens = len(self.tokens)
        self.running = Running(
            request_id, self.tokens, self.prompt_tokens, submission.logprobs, turn=0
        )

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_tokens


class Scheduler:
    """All live requests and the slot table they share.

    limits: the minimum over ranks. step_tokens: tokens per step, all rows together. waiting_max:
    length of the queue. Raises ConfigError for settings outside the limits.
    """

    def __init__(self, limits: PlanLimits, *, step_tokens: int, waiting_max: int) -> None:
        if not 1 <= step_tokens <= limits.tokens_per_step:
            rule = f"must be at least 1 and at most {limits.tokens_per_step}"
            raise ConfigError.single("max_step_tokens", step_tokens, rule)
        if waiting_max < 1:
            raise ConfigError.single("max_waiting", waiting_max, "must be at least 1")
        self._step_tokens = step_tokens
        self._waiting_max = waiting_max
        self._table = SlotTable.empty(limits)
        self._flight: Composed | None = None
        # Insertion order is order of arrival, and ids rise with it.
        self._live: dict[int, _Request] = {}
        self._last_id = -1
        self._cause: PeerError | None = None

    @property
    def table(self) -> SlotTable:
        """The table after the last committed step."""
        return self._table

    @property
    def idle(self) -> bool:
        """No live request: nothing waits, runs or has a release due."""
        return not self._live

    def submit(self, request_id: int, submission: Submission) -> tuple[Update, ...]:
        """Queues a request, or finishes it at once as REJECTED (or FAILED on a poisoned group).

        Ids are the caller's and must rise. Returns the updates to publish.
        """
        if request_id <= self._last_id:
            raise MisuseError(f"request id {request_id} must be above {self._last_id}")
        self._last_id = request_id
        request = _Request(request_id, submission)
        self._live[request_id] = request
        if self._cause is not None:
            return self._finish(request, RequestEvent.POISON, error=PoisonedError(self._cause))
        waiting = sum(1 for _ in self._in_state(RequestState.WAITING)) - 1
        error = refusal(submission, self._table.limits, waiting, self._waiting_max)
        if error is not None:
            return self._finish(request, RequestEvent.REJECT, error=error)
        return ()

    def end(self, request_id: int, event: RequestEvent) -> tuple[Update, ...]:
        """The client's side of the end. Unknown or finished ids change nothing."""
        if event not in CLIENT_EVENTS:
            raise MisuseError(f"a client can't {event.value} a request")
        request = self._live.get(request_id)
        if request is None:
            return ()
        if request.life.state is RequestState.WAITING:
            return self._finish(request, event)
        request.life.on(event)
        return ()

    def plan(self, *, heartbeat: bool = False) -> StepPlan | None:
        """The next step, now in flight; None when there is nothing to do.

        heartbeat: then an empty plan instead, which every rank answers and which changes nothing.
        Whoever runs the step holds the plan against the limits and the table before it is sent.
        """
        if self._flight is not None:
            raise MisuseError(f"step {self._flight.plan.step} is still in flight")
        if self._cause is not None:
            raise PoisonedError(self._cause)
        leaving = self._in_state(RequestState.RELEASING)
        flight = compose(
            self._table,
            frozenset(request.request_id for request in leaving),
            [Waiting(r.request_id, r.submission) for r in self._in_state(RequestState.WAITING)],
            [request.running for request in self._in_state(RequestState.RUNNING)],
            self._step_tokens,
        )
        if flight is None and heartbeat:
            step = self._table.next_step
            flight = Composed(StepPlan(step), replace(self._table, next_step=step + 1))
        if flight is None:
            return None
        plan = flight.plan
        unserved, served = (turn_of(plan.step, served=is_served) for is_served in (False, True))
        for admit in plan.admissions:
            self._live[admit.request_id].life.on(RequestEvent.ADMIT)
            self._live[admit.request_id].running.turn = unserved
        for row in plan.rows:
            self._live[row.request_id].running.turn = served
        self._flight = flight
        return plan

    def commit(self, result: StepResult) -> tuple[Update, ...]:
        """Advances by the step in flight; returns what to publish, in plan order.

        Raises ContractError `contract.metadata`, and changes nothing, when the artifacts are not
        exactly those the plan asked for.
        """
        if self._flight is None:
            raise MisuseError("no step is in flight")
        flight = self._flight
        sampled = match_artifacts(flight.plan, result, self._table.limits)
        self._flight = None
        self._table = flight.table
        updates: list[Update] = []
        for release in flight.plan.releases:
            request = self._live[release.request_id]
            updates += self._finish(request, RequestEvent.RELEASED, step=flight.plan.step)
        for row in flight.plan.rows:
            request = self._live[row.request_id]
            if request.life.state is RequestState.RUNNING:
                request.life.on(RequestEvent.ADVANCE)
                if row.request_id in sampled:
                    updates.append(_accept(request, flight.plan.step, sampled[row.request_id]))
        return tuple(updates)

    def poison(self, cause: PeerError) -> tuple[Update, ...]:
        """The group failed: every live request ends with this error. The first cause stands."""
        if self._cause is not None:
            return ()
        self._cause = cause
        self._flight = None
        updates: list[Update] = []
        for request in list(self._live.values()):
            updates += self._finish(request, RequestEvent.POISON, error=cause)
        return tuple(updates)

    def snapshot(self) -> Snapshot:
        """What exists now."""
        waiting = list(self._in_state(RequestState.WAITING))
        return Snapshot(
            table=self._table,
            in_flight=None if self._flight is None else self._flight.plan.step,
            waiting=tuple(request.request_id for request in waiting),
            states=tuple((r.request_id, r.life.state) for r in self._live.values()),
            submissions=tuple(request.submission for request in waiting),
        )

    def _in_state(self, state: RequestState) -> Iterator[_Request]:
        return (request for request in self._live.values() if request.life.state is state)

    def _finish(
        self,
        request: _Request,
        event: RequestEvent,
        *,
        step: int | None = None,
        error: TPError | None = None,
    ) -> tuple[Update, ...]:
        """The last event of a request: it is forgotten, and exactly one Finished leaves."""
        request.life.on(event)
        outcome = request.life.outcome
        if request.life.state is not RequestState.FINISHED or outcome is None:
            raise MisuseError(f"{event.value} does not finish request {request.request_id}")
        del self._live[request.request_id]
        return (
            Finished(
                request_id=request.request_id,
                outcome=outcome,
                step=step,
                prompt_tokens=request.prompt_tokens,
                completion_tokens=request.generated,
                error=error,
            ),
        )


def _accept(request: _Request, step: int, artifact: SampledToken) -> Token:
    """Appends the sampled token and decides whether the request is done."""
    index = request.generated
    request.tokens.append(artifact.token_id)
    if artifact.token_id in request.submission.stop_token_ids:
        request.life.on(RequestEvent.STOP)
    elif index + 1 == request.submission.max_tokens:
        request.life.on(RequestEvent.LENGTH)
    return Token(
        request_id=request.request_id,
        step=step,
        index=index,
        token_id=artifact.token_id,
        logprob=artifact.logprob,
        top=artifact.top,
    )
