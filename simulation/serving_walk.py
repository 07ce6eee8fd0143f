"""A seeded random walk over a whole simulated service, judged after every event.

Clients submit and leave; one rank may have a fault. The walk keeps its own record of what clients
did and saw, and knows what every answer must be; `InvariantError` says which rule broke.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from coordinator.request import Finished, Outcome, RequestEvent, Update
from coordinator.scheduler_walk import CLIENT_ENDS, OUTCOME_OF, require
from coordinator.submission import parse_submission
from errors import PeerError
from program.plan import PlanLimits
from simulation.faults import FaultKind
from simulation.serving_faults import IDLE_PHASE, AnyFault, ServingFault, Strike
from simulation.simulated_service import SimulatedService
from simulation.stand_in import expected_token

# What each fault is called (session.md S7, S5).
CODES: Final[dict[AnyFault, str]] = {
    FaultKind.RANK_EXIT: "protocol.closed",
    FaultKind.TRUNCATED_FRAME: "protocol.truncated",
    FaultKind.CHECKSUM_CORRUPTION: "protocol.checksum",
    FaultKind.STALE_EPOCH: "contract.epoch",
    FaultKind.DUPLICATE_SEQUENCE: "contract.sequence",
    FaultKind.METADATA_MISMATCH: "contract.metadata",
    FaultKind.DELAY: "deadline.receive",
    FaultKind.CANCELLATION_RACE: "deadline.receive",
    ServingFault.STALE_REPLY: "contract.epoch",
    ServingFault.UNDUE_FRAME: "contract.epoch",
    ServingFault.WRONG_PLAN_DIGEST: "contract.ranks_disagree",
    ServingFault.WRONG_STATE_DIGEST: "contract.ranks_disagree",
    ServingFault.WRONG_HIDDEN_DIGEST: "contract.ranks_disagree",
}


def phases_of(kind: AnyFault, phases: tuple[str, ...]) -> tuple[str, ...]:
    """Where a fault can strike, in a program with these phases."""
    match kind:
        case ServingFault.WRONG_PLAN_DIGEST:
            return ("plan",)
        case ServingFault.WRONG_STATE_DIGEST | ServingFault.WRONG_HIDDEN_DIGEST:
            return ("result",)
        case ServingFault.UNDUE_FRAME:
            return (IDLE_PHASE,)
        case _:
            return ("plan", *phases, "result")


@dataclass
class Client:
    """What one client asked, did and saw. ended_with: taken by the engine before `silent_from`."""

    request_id: int
    prompt: tuple[int, ...]
    max_tokens: int
    stop: frozenset[int]
    limits: PlanLimits
    seen: list[int] = field(default_factory=list)
    ended_with: RequestEvent | None = None
    finished: Finished | None = None

    def put(self, update: Update) -> None:
        """The engine's outbox: every rule about one client's view is checked here."""
        require(self.finished is None, "nothing follows the terminal event")
        require(update.request_id == self.request_id, "an update reaches its own client")
        if isinstance(update, Finished):
            self._end(update)
            return
        require(self.ended_with is None, "no token after the client's end was taken")
        require(not self.stop.intersection(self.seen), "no token after a stop token")
        expected = expected_token([*self.prompt, *self.seen], self.limits.vocab_size)
        require(update.token_id == expected, "the token depends on the request alone")
        require(update.index == len(self.seen), "tokens come in order, each once")
        self.seen.append(update.token_id)

    def flush(self) -> None:
        """Nobody waits."""

    def _end(self, end: Finished) -> None:
        self.finished = end
        require(end.completion_tokens == len(self.seen), "the end counts the tokens seen")
        stopped = bool(self.stop.intersection(self.seen))
        complete = len(self.seen) == self.max_tokens
        match end.outcome:
            case Outcome.STOP:
                require(stopped, "stop means that a stop token was sampled")
            case Outcome.LENGTH:
                require(complete and not stopped, "length means as many tokens as asked for")
            case Outcome.REJECTED:
                require(end.error is not None and not self.seen, "a refusal has a reason")
            case Outcome.FAILED:
                require(end.error is not None, "a failure names its cause")
            case outcome:
                wanted = None if self.ended_with is None else OUTCOME_OF[self.ended_with]
                require(outcome is wanted, "the client's own end is reported as such")


class ServingWalk:
    """`run` makes random events until a rank fails, or `events` of them; then `end` closes."""

    def __init__(
        self, seed: int, service: SimulatedService, strike: tuple[int, Strike] | None
    ) -> None:
        self._random = Random(seed)
        self._service = service
        self._strike = strike
        self._clients: list[Client] = []
        self._pending: list[tuple[Client, RequestEvent]] = []
        self.events = 0
        service.during = self._during

    @property
    def clients(self) -> tuple[Client, ...]:
        return tuple(self._clients)

    @property
    def failed(self) -> bool:
        """Whether the fault struck and stopped the service."""
        return self._service.engine.failure is not None

    def run(self, events: int) -> None:
        last = self.events + events
        while self.events < last:
            choice = self._random.random()
            if choice < 0.28:
                self._submit()
            elif choice < 0.40:
                self._client_ends()
            else:
                self._turn()
            if self._service.engine.failure is not None:
                return

    def end(self) -> None:
        """After a failure nothing lives; else a stop lets all end, and nothing is held."""
        service = self._service
        if service.engine.failure is None:
            self._stop()
        failure = service.engine.failure
        if failure is not None:
            self._judge_failure(failure.cause, failure.step)
        elif self._strike is not None:
            strike = self._strike[1]
            # One that strikes after a step lets that one pass, and may be the last of all.
            passed = strike.epoch - (0 if strike.phase == IDLE_PHASE else 1)
            require(service.engine.snapshot.steps <= passed, "no step passes over a fault")
        for client in self._clients:
            require(client.finished is not None, "every request ends exactly once")
        require(service.engine.done or failure is not None, "the service ends")

    def _stop(self) -> None:
        service = self._service
        seconds = self._random.choice([0.0, 1000.0])
        service.inbox.stop(service.clock.now() + seconds)
        self._take_ends()
        if seconds == 0.0:
            # The engine itself drops those that live.
            self._pending = [(client, RequestEvent.DROP) for client in self._clients]
            self._take_ends()
        service.engine.run()
        if service.engine.failure is None:
            tables = [service.engine.snapshot.scheduler.table]
            tables += [executor.table for executor in service.executors]
            require(not any(table.residents for table in tables), "no slot is held at the end")
            free = {table.free_pages for table in tables}
            require(free == {service.limits.pages}, "no page is held at the end")

    def _submit(self) -> None:
        self.events += 1
        random, limits = self._random, self._service.limits
        prompt = tuple(
            random.randrange(limits.vocab_size) for _ in range(random.choice([1, 2, 3, 6, 14]))
        )
        # Some could never fit.
        max_tokens = random.choice([1, 2, 4, 9, 18, limits.pages * limits.page_tokens])
        stop = random.sample(range(limits.vocab_size), random.choice([0, 1, 4]))
        given: dict[str, object] = {"prompt_token_ids": list(prompt), "max_tokens": max_tokens}
        given |= {"stop_token_ids": stop}
        if random.random() < 0.3:
            given["logprobs"] = random.choice([0, 1, 5])
        client = Client(-1, prompt, max_tokens, frozenset(stop), limits)
        client.request_id = self._service.inbox.submit(parse_submission(given, limits), client)
        self._clients.append(client)
        # The inbox is bounded: what came must be taken before more may come.
        if self._random.random() < 0.7 or len(self._clients) % 4 == 0:
            self._turn()

    def _client_ends(self) -> None:
        """Any request at all: live, finished, unknown."""
        self.events += 1
        event = self._random.choice(CLIENT_ENDS)
        if not self._clients or self._random.random() < 0.1:
            self._service.inbox.end(self._random.choice([-1, 10**9]), event)
            return
        client = self._random.choice(self._clients[-8:])
        self._service.inbox.end(client.request_id, event)
        self._pending.append((client, event))

    def _turn(self) -> None:
        self.events += 1
        service = self._service
        self._take_ends()
        before = service.clock.now()
        if not service.engine.turn() and service.engine.failure is None:
            service.engine.wait()
        elapsed = service.clock.now() - before
        require(elapsed <= WAIT_MAX_S, "no wait is longer than its bound")
        if service.engine.failure is None:
            self._judge_state()

    def _during(self) -> None:
        """A client may leave while a step runs; it gets no token of that step."""
        if self._random.random() < 0.15:
            self._client_ends()
            self._take_ends()

    def _take_ends(self) -> None:
        """The next turn takes the ends first, so from here on their requests are silent."""
        for client, event in self._pending:
            over = client.stop.intersection(client.seen) or len(client.seen) == client.max_tokens
            if client.finished is None and client.ended_with is None and not over:
                client.ended_with = event
        self._pending.clear()

    def _judge_state(self) -> None:
        service = self._service
        table = service.engine.snapshot.scheduler.table
        digests = {table.digest()} | {executor.table.digest() for executor in service.executors}
        require(len(digests) == 1, "all ranks have the coordinator's table")
        states = dict(service.engine.snapshot.scheduler.states)
        live = {client.request_id for client in self._clients if client.finished is None}
        require(set(states) <= live, "only requests without an end are live")

    def _judge_failure(self, cause: PeerError, step: int | None) -> None:
        service = self._service
        require(self._strike is not None, f"without a fault nothing fails: {cause.diagnostics()}")
        if self._strike is None:
            return
        rank, strike = self._strike
        idle = strike.phase == IDLE_PHASE
        wanted = (CODES[strike.kind], rank, strike.phase if not idle else cause.phase)
        require((cause.code, cause.rank, cause.phase) == wanted, f"{wanted} fails as {cause}")
        due = strike.epoch - 1
        # An undue frame is noticed between the steps, or where the next one begins.
        require(step == due or (idle and step in (None, due + 1)), "in the step of the fault")
        require(service.retired == [cause], "the first failure alone ends the ranks")
        last = service.recorder.entries()[-1]
        # Digests of reports are judged by the session, after the frame was accepted.
        if cause.code != "contract.ranks_disagree" or cause.phase == "plan":
            require((last.rank, last.error) == (rank, cause.code), "the ledger ends with it")
        for client in self._clients:
            end = client.finished
            require(end is not None, "every live request got its error")
        plans = service.engine.snapshot.steps
        late = Client(-1, (1,), 1, frozenset(), service.limits)
        given = {"prompt_token_ids": [1], "max_tokens": 1}
        late.request_id = service.inbox.submit(parse_submission(given, service.limits), late)
        require(not service.engine.turn(), "nothing runs after a failure")
        require(late.finished is not None, "later requests end at once")
        require(service.engine.snapshot.steps == plans, "no step follows a failure")


# A phase's deadline in the simulated manifests, and the engine's longest idle wait.
WAIT_MAX_S: Final = 61.0
