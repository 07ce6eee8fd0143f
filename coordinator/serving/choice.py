"""One prompt of a body: its request to the engine, its answer so far, and when things happened."""

from __future__ import annotations

from coordinator.request import Finished, Outcome
from coordinator.serving.generation import Generation
from coordinator.submission import Submission
from errors import MisuseError, TPError

_ENDS = {
    Outcome.CANCELLED: ("request.cancelled", "the request was cancelled"),
    Outcome.DISCONNECTED: ("request.cancelled", "the client left"),
    Outcome.DROPPED: ("request.dropped", "the service, or its operator, ended the request"),
}


class Choice:
    """index: its place in the body. request_id: the engine's, once submitted.

    arrived, admitted, first, last: seconds of the service's clock: the body was there, the request
    left the queue (to within one look of the queue's watch), first and last token.
    """

    def __init__(
        self, index: int, submission: Submission, generation: Generation, arrived: float
    ) -> None:
        self.index = index
        self.submission = submission
        self.generation = generation
        self.arrived = arrived
        self.request_id: int | None = None
        self.finished: Finished | None = None
        # The engine was told to end it.
        self.ending = False
        # Where it was last seen in the queue.
        self.seen_waiting = arrived
        self.admitted: float | None = None
        self.first: float | None = None
        self.last: float | None = None
        self.token_times: list[float] = []

    @property
    def prompt_tokens(self) -> int:
        return len(self.submission.prompt_token_ids)

    @property
    def live(self) -> bool:
        """Submitted, and its end has not been told."""
        return self.request_id is not None and self.finished is None

    @property
    def waiting(self) -> bool:
        """Not known to have left the queue."""
        return self.live and self.admitted is None

    def timings(self) -> dict[str, object]:
        """Milliseconds, and the seed in force (null: greedy)."""
        if self.admitted is None or self.first is None or self.last is None:
            raise MisuseError("a request without tokens has no timings")
        sampling = self.submission.sampling
        decoded = self.generation.completion_tokens - 1
        decode_ms = _ms(self.last - self.first)
        return {
            "queue_ms": _ms(self.admitted - self.arrived),
            "prefill_ms": _ms(self.first - self.admitted),
            "ttft_ms": _ms(self.first - self.arrived),
            "decode_ms": decode_ms,
            "decode_ms_per_token": round(decode_ms / decoded, 3) if decoded else None,
            "token_ms": [_ms(at - self.arrived) for at in self.token_times],
            "seed": sampling.seed if sampling.temperature > 0 else None,
        }

    def count(self, at: float) -> None:
        """A token was published at this time."""
        if self.first is None:
            self.first = at
            # The queue is looked at less often than tokens come.
            self.admitted = at if self.admitted is None else min(self.admitted, at)
        self.last = at
        self.token_times.append(at)


def error_of(finished: Finished) -> TPError | None:
    """What the client is told about the end; None for a success."""
    if finished.error is not None:
        return finished.error
    told = _ENDS.get(finished.outcome)
    return None if told is None else TPError(*told)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
