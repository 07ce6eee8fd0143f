"""A served model for tests: the real engine in its own thread, over ranks that follow a script.

It loads, is slow, full or poisoned when a test says so. Tokens are those of the tiny model's
tokenizer, so that text goes in and out as with a checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

from coordinator.engine import Engine, RankStatus
from coordinator.engine_inbox import Inbox, Outbox
from coordinator.request import RequestEvent
from coordinator.scheduler import Scheduler
from coordinator.serving.served import Phase, RankLoad, RankPhase, Status
from coordinator.submission import Submission
from errors import MisuseError, OverloadError, PeerError, PoisonedError, ProtocolError
from program.artifacts import SampledToken, TokenLogprob
from program.plan import PlanLimits, Sample, StepPlan
from program.plan_codec import plan_digest
from program.slots import SlotTable, apply
from program.step_report import StepReport

LIMITS: Final = PlanLimits(
    vocab_size=1024, context_tokens=1024, slots=4, pages=256, page_tokens=16, tokens_per_step=256
)
EOS: Final = 0
NO_DIGEST: Final = "0" * 64
GONE: Final = ProtocolError("closed", "the stream ended", rank=1, phase="plan")
_HEARTBEAT_S: Final = 3600.0
_JOIN_S: Final = 20.0

# The next token of a request, given its tokens so far and how many of them are the prompt's.
Script = Callable[[Sequence[int], int], int]


def writes(answer: Sequence[int]) -> Script:
    """Every request is answered with these tokens, then with the end of text for ever."""

    def script(tokens: Sequence[int], prompt_tokens: int) -> int:
        index = len(tokens) - prompt_tokens
        return answer[index] if index < len(answer) else EOS

    return script


def counts(tokens: Sequence[int], prompt_tokens: int) -> int:
    """A script that never ends: printable tokens by position and prompt."""
    return 1 + (tokens[0] + len(tokens)) % 94


class ScriptedRanks:
    """step_s: how long a step takes. failure: of the next step. plans: what was run.

    going: steps wait while it is clear. held: set while one waits.
    """

    def __init__(self, limits: PlanLimits, script: Script) -> None:
        self.table = SlotTable.empty(limits)
        self.script = script
        self.step_s = 0.0
        self.failure: PeerError | None = None
        self.plans: list[StepPlan] = []
        self.wake = threading.Event()
        self.going = threading.Event()
        self.going.set()
        self.held = threading.Event()
        self._tokens: dict[int, list[int]] = {}

    def step(self, plan: StepPlan, meanwhile: Callable[[], None]) -> StepReport:
        meanwhile()
        if not self.going.is_set():
            self.held.set()
            self.going.wait()
            self.held.clear()
        if self.step_s:
            time.sleep(self.step_s)
        self.plans.append(plan)
        if self.failure is not None:
            raise self.failure
        for release in plan.releases:
            self._tokens.pop(release.request_id, None)
        self.table = apply(plan, self.table)
        artifacts = []
        for row in plan.rows:
            tokens = self._tokens.setdefault(row.request_id, [])
            tokens += row.token_ids
            if isinstance(row.artifact, Sample):
                artifacts.append(self._sampled(row.request_id, row.artifact))
        return StepReport(plan_digest(plan), self.table.digest(), NO_DIGEST, tuple(artifacts))

    def wait(self, deadline: float) -> None:
        self.wake.wait(max(0.0, deadline - time.monotonic()))
        self.wake.clear()
        if self.failure is not None:
            raise self.failure

    def retire(self, cause: PeerError) -> PeerError:
        # What an ended group would say is said once; the engine then waits for its inbox alone.
        self.failure = None
        return cause

    def status(self) -> tuple[RankStatus, ...]:
        digest = self.table.digest()
        return tuple(RankStatus(rank, None, {}, digest, NO_DIGEST) for rank in range(2))

    def _sampled(self, request_id: int, wanted: Sample) -> SampledToken:
        tokens = self._tokens[request_id]
        found = self.table.find(request_id)
        if found is None:
            raise MisuseError(f"request {request_id} holds no slot")
        token_id = self.script(tokens, found[1].prompt_tokens)
        if wanted.logprobs is None:
            return SampledToken(request_id, len(tokens), token_id)
        others = [token_id, *(one for one in range(1, 30) if one != token_id)]
        top = tuple(
            TokenLogprob(one, -0.5 * (place + 1))
            for place, one in enumerate(others[: wanted.logprobs])
        )
        return SampledToken(request_id, len(tokens), token_id, -0.5, top)


class FakeServed:
    """A `Served`; a context manager that starts and ends the engine's thread.

    phase: what submit and status say; a test may change it at any time.
    """

    def __init__(
        self,
        script: Script = counts,
        *,
        limits: PlanLimits = LIMITS,
        waiting_max: int = 8,
        step_tokens: int = 64,
        step_s: float = 0.0,
        phase: Phase = Phase.SERVING,
    ) -> None:
        self.model_id = "fake-model"
        self.program = "qwen35_step"
        self.created = 1_700_000_000
        self.limits = limits
        self.eos_token_ids: tuple[int, ...] = (EOS,)
        self.phase = phase
        self.restarts = 0
        self.ranks = ScriptedRanks(limits, script)
        self.ranks.step_s = step_s
        self.ended: list[tuple[int, RequestEvent]] = []
        self.submitted: list[Submission] = []
        self.inbox = Inbox(waiting_max, self.ranks.wake.set)
        scheduler = Scheduler(limits, step_tokens=step_tokens, waiting_max=waiting_max)
        self.engine = Engine(
            self.ranks,
            scheduler,
            self.inbox,
            heartbeat_s=_HEARTBEAT_S,
            clock=self.clock,
            failed=self._failed,
        )
        self._thread = threading.Thread(target=self.engine.run, name="engine", daemon=True)

    def __enter__(self) -> FakeServed:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self.inbox.stop(self.clock())
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            raise MisuseError("the engine's thread has not ended")

    def submit(self, submission: Submission, outbox: Outbox) -> int:
        if self.phase in (Phase.STARTING, Phase.LOADING, Phase.RESTARTING):
            raise OverloadError("overload.loading", "the model is being loaded")
        if self.phase in (Phase.STOPPING, Phase.ENDED):
            raise OverloadError("overload.stopping", "the service is stopping")
        failure = self.engine.failure
        if failure is not None:
            raise PoisonedError(failure.cause)
        self.submitted.append(submission)
        return self.inbox.submit(submission, outbox)

    def end(self, request_id: int, event: RequestEvent) -> None:
        self.ended.append((request_id, event))
        self.inbox.end(request_id, event)

    def status(self) -> Status:
        loading = self.phase in (Phase.STARTING, Phase.LOADING)
        phase = RankPhase.LOADING if loading else RankPhase.READY
        now = self.clock()
        return Status(
            phase=self.phase,
            epoch=1,
            ranks=tuple(
                RankLoad(rank, None, phase, 50 if loading else 100, 100, None, now)
                for rank in range(2)
            ),
            snapshot=None if loading else self.engine.snapshot,
            failure=self.engine.failure,
            progress_at=now,
            restarts=self.restarts,
        )

    def clock(self) -> float:
        return time.monotonic()

    def hold(self) -> None:
        """Steps don't end, from the next one on, until `release`."""
        self.ranks.going.clear()

    def release(self) -> None:
        self.ranks.going.set()

    def poison(self, cause: PeerError = GONE) -> None:
        """The running step fails, or the idle group does."""
        self.ranks.failure = cause
        self.ranks.wake.set()
        self.release()

    @property
    def idle(self) -> bool:
        """No request lives, and no slot or page is held."""
        seen = self.engine.snapshot.scheduler
        return not seen.states and not seen.table.residents

    def _failed(self) -> None:
        self.phase = Phase.FAILED
