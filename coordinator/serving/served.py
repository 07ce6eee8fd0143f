"""What the HTTP front end needs of a served model: submit, end, look.

The routes know this protocol alone, so they run over real ranks, over an engine with simulated
ones, or over a fake. Everything here may be called by any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from coordinator.engine import EngineSnapshot, Failure
from coordinator.engine_inbox import Outbox
from coordinator.request import RequestEvent
from coordinator.submission import Submission
from program.plan import PlanLimits


class Phase(Enum):
    """Where the service is. FAILED: a rank failed, and nothing is served any more."""

    STARTING = "starting"
    LOADING = "loading"
    SERVING = "serving"
    FAILED = "failed"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    ENDED = "ended"


class RankPhase(Enum):
    """What is known of one rank's process. STOPPED: it exists, and is kept from running."""

    WAITING = "waiting"
    LOADING = "loading"
    READY = "ready"
    STOPPED = "stopped"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class RankLoad:
    """How far one rank is. bytes_due: weights and state, once it has loaded.

    bytes_loaded: an estimate from the resident size while it loads, never above bytes_due.
    rss_bytes: resident size now, None when the process is gone. last_seen: when it last answered,
    on the service's clock.
    """

    rank: int
    pid: int | None
    phase: RankPhase
    bytes_loaded: int
    bytes_due: int
    rss_bytes: int | None
    last_seen: float | None


@dataclass(frozen=True, slots=True)
class Status:
    """One consistent look. progress_at: when a step last ended, or the load last moved.

    failure: the first of the running epoch, or the one that ended the last epoch while it restarts.
    """

    phase: Phase
    epoch: int
    ranks: tuple[RankLoad, ...]
    snapshot: EngineSnapshot | None
    failure: Failure | None
    progress_at: float
    restarts: int


class Served(Protocol):
    """A model behind the front end."""

    @property
    def model_id(self) -> str:
        """How clients name it: the checkpoint's folder name."""

    @property
    def program(self) -> str:
        """The program that the ranks run, as in the manifest."""

    @property
    def created(self) -> int:
        """When the service started, in seconds of Unix time."""

    @property
    def limits(self) -> PlanLimits: ...

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a request unless it says otherwise."""

    def submit(self, submission: Submission, outbox: Outbox) -> int:
        """The request's id.

        Raises OverloadError (`overload.loading`, `overload.stopping`, `overload.queue`) and
        PoisonedError when the group has failed.
        """

    def end(self, request_id: int, event: RequestEvent) -> None:
        """See `engine_inbox.Inbox.end`."""

    def status(self) -> Status: ...

    def clock(self) -> float:
        """Monotonic seconds; that of every time told here."""
