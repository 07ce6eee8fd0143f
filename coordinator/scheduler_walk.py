"""A seeded random walk over the scheduler and several slot tables, judged after every event.

No processes and no model: each "rank" is a slot table that receives every plan as canonical JSON,
and a sampled token is a fixed function of request and position. The walk keeps its own simple
record of what clients did and saw; `InvariantError` says which rule broke. The rules are those of
docs/spec/plan.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from coordinator.admission import lifetime_pages
from coordinator.request import Finished, Outcome, RequestEvent, Token, Update
from coordinator.scheduler import Scheduler
from coordinator.step_result import StepResult
from coordinator.submission import Submission
from errors import ContractError
from program.artifacts import SampledToken
from program.canonical import canonical_json
from program.plan import PlanLimits, Row, Sample, Sampling, StepPlan
from program.plan_codec import decode_plan, encode_plan
from program.slots import SlotTable, apply

CLIENT_ENDS = (RequestEvent.CANCEL, RequestEvent.DISCONNECT, RequestEvent.DROP)
OUTCOME_OF = {
    RequestEvent.CANCEL: Outcome.CANCELLED,
    RequestEvent.DISCONNECT: Outcome.DISCONNECTED,
    RequestEvent.DROP: Outcome.DROPPED,
}


class InvariantError(Exception):
    """A rule that must hold after every event does not."""


def require(holds: bool, rule: str) -> None:
    if not holds:
        raise InvariantError(rule)


@dataclass
class Client:
    """What one client asked, did and saw."""

    request_id: int
    submission: Submission
    seen: list[int] = field(default_factory=list)
    ended_with: RequestEvent | None = None
    admitted: bool = False
    released_in: int | None = None
    finished: Finished | None = None
    unserved: int = 0

    @property
    def tokens(self) -> list[int]:
        return [*self.submission.prompt_token_ids, *self.seen]


@dataclass(frozen=True)
class WalkSettings:
    """Shape of one walk. ranks: slot tables beside the scheduler's own."""

    limits: PlanLimits
    step_tokens: int
    waiting_max: int
    ranks: int = 2


class Walk:
    """One walk. `run` makes random events; `drain` lets everything end; both check every rule."""

    def __init__(self, seed: int, settings: WalkSettings, scheduler: Scheduler) -> None:
        self._random = Random(seed)
        self._settings = settings
        self._scheduler = scheduler
        self._tables = [SlotTable.empty(settings.limits)] * settings.ranks
        self._clients: dict[int, Client] = {}
        self._last_admitted = -1
        self.steps = 0

    @property
    def clients(self) -> Sequence[Client]:
        return tuple(self._clients.values())

    def run(self, events: int) -> None:
        for _ in range(events):
            choice = self._random.random()
            if choice < 0.30:
                self._submit()
            elif choice < 0.42:
                self._client_ends()
            else:
                self._step()

    def drain(self, steps_max: int = 100_000) -> None:
        """Steps until nothing is left; then every slot, page and request must be gone."""
        for _ in range(steps_max):
            if self._scheduler.idle:
                break
            require(self._step(), "a live request always leads to a plan")
        require(self._scheduler.idle, "everything ends")
        for table in (self._scheduler.table, *self._tables):
            require(not table.residents, "no slot is held at idle")
            require(table.free_pages == self._settings.limits.pages, "no page is held at idle")
        for client in self.clients:
            require(client.finished is not None, "every request ends exactly once")

    def _submit(self) -> None:
        request_id = len(self._clients)
        submission = self._random_submission()
        self._clients[request_id] = Client(request_id, submission)
        pages = lifetime_pages(submission, self._settings.limits)
        waiting = sum(1 for c in self.clients if not c.admitted and c.finished is None) - 1
        updates = self._scheduler.submit(request_id, submission)
        impossible = pages > self._settings.limits.pages
        refused = impossible or waiting >= self._settings.waiting_max
        require(bool(updates) == refused, "exactly the impossible and the overflowing are refused")
        self._publish(updates, None)

    def _random_submission(self) -> Submission:
        random, limits = self._random, self._settings.limits
        longest = min(limits.context_tokens, (limits.pages + 1) * limits.page_tokens)
        prompt = random.choice([1, 1, 2, 3, random.randint(1, longest - 1)])
        max_tokens = random.choice([1, 2, 5, random.randint(1, longest)])
        max_tokens = min(max_tokens, limits.context_tokens - prompt)
        tokens = tuple(random.randrange(limits.vocab_size) for _ in range(prompt))
        stop = frozenset(random.sample(range(limits.vocab_size), random.randint(0, 2)))
        return Submission(tokens, max_tokens, Sampling(), stop)

    def _client_ends(self) -> None:
        """Any id at all: live, finished, or never seen."""
        request_id = self._random.randrange(-1, len(self._clients) + 2)
        event = self._random.choice(CLIENT_ENDS)
        updates = self._scheduler.end(request_id, event)
        client = self._clients.get(request_id)
        if client is not None and client.finished is None and client.ended_with is None:
            client.ended_with = event
            require(client.admitted != bool(updates), "only a waiting request ends at once")
        else:
            require(not updates, "an end of a request that is over changes nothing")
        self._publish(updates, None)

    def _step(self) -> bool:
        plan = self._scheduler.plan()
        if plan is None:
            return False
        self.steps += 1
        data = canonical_json(encode_plan(plan))
        for rank, table in enumerate(self._tables):
            self._tables[rank] = self._accept(data, table)
        self._check_plan(plan)
        if self._random.random() < 0.2:
            self._client_ends()
        artifacts = tuple(
            SampledToken(row.request_id, end, self._sampled(row.request_id, end))
            for row, end in ((row, row.start_position + len(row.token_ids)) for row in plan.rows)
            if row.artifact is not None
        )
        self._publish(self._scheduler.commit(StepResult(plan.step, artifacts)), plan)
        digests = {table.digest() for table in (self._scheduler.table, *self._tables)}
        require(len(digests) == 1, "all tables have equal digests after a step")
        self._check_table()
        return True

    def _accept(self, data: bytes, table: SlotTable) -> SlotTable:
        try:
            return apply(decode_plan(json.loads(data), self._settings.limits), table)
        except ContractError as error:
            raise InvariantError(f"every rank accepts every plan: {error.message}") from error

    def _sampled(self, request_id: int, position: int) -> int:
        return (request_id * 7919 + position * 104_729) % self._settings.limits.vocab_size

    def _publish(self, updates: Sequence[Update], plan: StepPlan | None) -> None:
        for update in updates:
            client = self._clients[update.request_id]
            require(client.finished is None, "nothing follows the terminal event")
            if isinstance(update, Token):
                self._publish_token(client, update)
            else:
                self._publish_end(client, update, plan)

    def _publish_token(self, client: Client, update: Token) -> None:
        require(client.ended_with is None, "no token after the client ended the request")
        require(update.index == len(client.seen), "tokens arrive in order, each once")
        stop = client.submission.stop_token_ids
        require(not stop.intersection(client.seen), "no token after a stop token")
        client.seen.append(update.token_id)

    def _publish_end(self, client: Client, end: Finished, plan: StepPlan | None) -> None:
        client.finished = end
        require(
            end.completion_tokens == len(client.seen), "the end counts the tokens that were seen"
        )
        if client.admitted:
            step = None if plan is None else plan.step
            acknowledged = step is not None and step == client.released_in == end.step
            require(acknowledged, "an end is published by the step that carried the release")
        stopped = bool(client.submission.stop_token_ids.intersection(client.seen))
        complete = len(client.seen) == client.submission.max_tokens
        match end.outcome:
            case Outcome.STOP:
                require(stopped, "stop means that a stop token was sampled")
            case Outcome.LENGTH:
                require(complete and not stopped, "length means max_tokens without a stop token")
            case Outcome.REJECTED:
                require(not client.admitted and end.error is not None, "a refusal has a reason")
            case outcome:
                event = client.ended_with
                expected = None if event is None else OUTCOME_OF[event]
                require(outcome is expected, "the client's own end is reported as such")
                require(not stopped and not complete, "a finished answer is not lost to a late end")

    def _check_plan(self, plan: StepPlan) -> None:
        before = self._scheduler.table
        for release in plan.releases:
            client = self._clients[release.request_id]
            require(client.released_in is None, "a request is released once")
            client.released_in = plan.step
        for resident in before.residents:
            over = self._is_over(self._clients[resident.request_id])
            released = self._clients[resident.request_id].released_in == plan.step
            require(over == released, "who is over is released by the next plan, and only they")
        for admit in plan.admissions:
            client = self._clients[admit.request_id]
            waiting = [c for c in self.clients if not c.admitted and c.finished is None]
            require(client is waiting[0], "first come, first served")
            client.admitted = True
        require(plan.token_count <= self._settings.step_tokens, "a step stays within its budget")
        self._check_rows(plan, apply(plan, before))

    def _is_over(self, client: Client) -> bool:
        submission = client.submission
        stopped = bool(submission.stop_token_ids.intersection(client.seen))
        return client.ended_with is not None or stopped or len(client.seen) == submission.max_tokens

    def _check_rows(self, plan: StepPlan, after: SlotTable) -> None:
        rows = {row.request_id: row for row in plan.rows}
        for request_id, row in rows.items():
            self._check_row(self._clients[request_id], row)
        wanted = 0
        decodes: list[Client] = []
        prefills: list[Client] = []
        for resident in after.residents:
            client = self._clients[resident.request_id]
            row_tokens = len(rows[client.request_id].token_ids) if client.request_id in rows else 0
            start = resident.computed_tokens - row_tokens
            wanted += len(client.tokens) - start
            prefill = start < len(client.submission.prompt_token_ids)
            (prefills if prefill else decodes).append(client)
        full = min(wanted, self._settings.step_tokens)
        require(plan.token_count == full, "no budget is left while there is work")
        prefills.sort(key=lambda client: client.request_id)
        if self._settings.step_tokens > len(decodes):
            require(
                all(c.request_id in rows for c in decodes), "long prefills don't starve decodes"
            )
        self._check_starvation(decodes + prefills[:1], rows)
        served = [client.request_id in rows for client in prefills]
        require(served == sorted(served, reverse=True), "prefills run in order of arrival")

    def _check_starvation(self, clients: Sequence[Client], rows: dict[int, Row]) -> None:
        bound = -(-self._settings.limits.slots // self._settings.step_tokens)
        for client in clients:
            client.unserved = 0 if client.request_id in rows else client.unserved + 1
            require(client.unserved < bound, "a row in any ceil(slots / budget) steps")

    def _check_row(self, client: Client, row: Row) -> None:
        require(client.ended_with is None, "a request that ended has no row")
        end = row.start_position + len(row.token_ids)
        known = client.tokens
        require(len(row.token_ids) > 0, "no empty rows are planned")
        require(list(row.token_ids) == known[row.start_position : end], "rows carry the tokens")
        require(isinstance(row.artifact, Sample) == (end == len(known)), "sampled at the end alone")

    def _check_table(self) -> None:
        table, limits = self._scheduler.table, self._settings.limits
        residents = table.residents
        require(all(table.slots[: len(residents)]), "slots are dense")
        owned = [page for resident in residents for page in resident.pages]
        require(len(owned) == len(set(owned)), "no page is owned twice")
        require(all(0 <= page < limits.pages for page in owned), "pages exist")
        for resident in residents:
            pages = lifetime_pages(self._clients[resident.request_id].submission, limits)
            require(len(resident.pages) == pages, "pages for the full lifetime")
        waiting = [c for c in self.clients if not c.admitted and c.finished is None]
        snapshot = self._scheduler.snapshot()
        require(list(snapshot.waiting) == [c.request_id for c in waiting], "the queue is as seen")
