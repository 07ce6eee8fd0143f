"""A loaded model over real links, as the engine uses it: steps, the watch while idle, the end.

It must not know requests. docs/spec/service.md V6 to V9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from coordinator.engine import RankStatus
from coordinator.model_session import ModelSession
from coordinator.rank_watch import judge_undue
from errors import PeerError
from program.plan import StepPlan
from program.step_report import StepReport
from wire.link import Link
from wire.socket_pipe import Source, wait_readable


class WakeSource(Source, Protocol):
    """Readable when the engine is wanted."""

    def clear(self) -> None: ...


class LinkedRanks:
    """links: those of the session, in rank order.

    pids: of the processes that were started for this session. end: ends them within a bound and
    adds what the failed one said.
    """

    def __init__(
        self,
        session: ModelSession,
        links: Sequence[Link],
        wake: WakeSource,
        pids: Mapping[int, int],
        end: Callable[[PeerError], PeerError],
    ) -> None:
        self._session = session
        self._links = links
        self._wake = wake
        self._pids = pids
        self._end = end
        self._retired = False
        self._status: tuple[RankStatus, ...] = ()
        self._status_of: Sequence[StepReport] | None = None

    def step(self, plan: StepPlan, meanwhile: Callable[[], None]) -> StepReport:
        """See `engine.Ranks.step`."""
        return self._session.step(plan, meanwhile)

    def wait(self, deadline: float) -> None:
        """See `engine.Ranks.wait`. Costs nothing while nothing happens: one poll over all links."""
        links = () if self._retired else tuple(self._links)
        undue = [link for link in links if link.connection.has_news]
        if not undue:
            sources: list[Source] = [self._wake, *(link.pipe for link in links)]
            ready = wait_readable(sources, deadline)
            undue = [links[index - 1] for index in ready if index > 0]
        self._wake.clear()
        if undue:
            failure = judge_undue(undue[0])
            self._session.group.stop(failure)
            raise failure

    def retire(self, cause: PeerError) -> PeerError:
        """See `engine.Ranks.retire`."""
        self._retired = True
        self._session.group.stop(cause)
        return self._end(cause)

    def status(self) -> tuple[RankStatus, ...]:
        """See `engine.Ranks.status`."""
        reports = self._session.last_reports
        if reports is self._status_of:
            return self._status
        self._status_of = reports
        self._status = tuple(
            RankStatus(
                rank=rank,
                pid=self._pids.get(rank),
                load=load,
                state_digest=reports[rank].state_digest if reports else None,
                hidden_digest=reports[rank].hidden_digest if reports else None,
            )
            for rank, load in enumerate(self._session.reports)
        )
        return self._status
