"""One prompt's answer as its tokens come: text, stop strings, log-probabilities, the end.

Values only: updates in, deltas out. It must not know HTTP, threads or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.request import Finished, Outcome, Token
from coordinator.serving.stop_strings import StopStrings
from coordinator.serving.text import ModelText
from coordinator.submission import Submission

FINISH_REASONS = {Outcome.STOP: "stop", Outcome.LENGTH: "length"}


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token with log-probabilities.

    text_offset: characters that were complete before it, also where a stop string cut them off.
    """

    token: Token
    text_offset: int


@dataclass(frozen=True, slots=True)
class Delta:
    """What one update adds. records: only where log-probabilities were asked for.

    stops: the update completed a stop string, so the engine is to be told.
    """

    text: str
    records: tuple[TokenRecord, ...] = ()
    stops: bool = False


class Generation:
    """echo: text that the answer begins with; echo_ids: or tokens whose text it begins with."""

    def __init__(
        self,
        text: ModelText,
        submission: Submission,
        stops: Sequence[str] = (),
        *,
        echo: str = "",
        echo_ids: Sequence[int] = (),
    ) -> None:
        self._submission = submission
        self._stream = text.stream()
        self._stops = StopStrings(stops) if stops else None
        self._wants_records = submission.logprobs is not None
        # A character may begin in the prompt's tokens and end in the answer's.
        self._echo = echo + "".join(map(self._stream.feed, echo_ids))
        self._pieces: list[str] = []
        # Characters that tokens have given, told or held back.
        self._given = len(self._echo)
        self.records: list[TokenRecord] = []
        self.completion_tokens = 0
        self.finish_reason: str | None = None

    @property
    def stopped(self) -> bool:
        """A stop string was found: further tokens do not count."""
        return self._stops is not None and self._stops.found is not None

    @property
    def text(self) -> str:
        """All that is certain."""
        return "".join(self._pieces)

    def begin(self) -> Delta:
        """Before the first token: the echo."""
        return self._said(self._echo)

    def feed(self, token: Token) -> Delta:
        """What the token adds. None may come after a stop string was found."""
        self.completion_tokens += 1
        offset = self._given
        # The token that ends a request is no part of its text.
        ends = token.token_id in self._submission.stop_token_ids
        piece = "" if ends else self._stream.feed(token.token_id)
        self._given += len(piece)
        if self._stops is not None and piece:
            piece = self._stops.feed(piece)
        if piece:
            self._pieces.append(piece)
        if not self._wants_records:
            return Delta(piece, (), self.stopped)
        record = TokenRecord(token, offset)
        self.records.append(record)
        return Delta(piece, (record,), self.stopped)

    def finish(self, finished: Finished) -> Delta:
        """The end of a success: what was held back, and the reason."""
        tail = ""
        if not self.stopped:
            tail = self._stream.flush()
            if self._stops is not None:
                tail = self._stops.feed(tail)
                tail += self._stops.flush()
        reason = "stop" if self.stopped else FINISH_REASONS[finished.outcome]
        self.finish_reason = reason
        return self._said(tail)

    def _said(self, text: str) -> Delta:
        if text:
            self._pieces.append(text)
        return Delta(text)
