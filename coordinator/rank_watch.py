"""While one rank is awaited, the others are watched: one that has gone is noticed at once.

A group consumes ranks strictly in rank order, and a wait may last a whole phase. When serving, a
rank that has hung up meanwhile ends that wait. It gets a moment first, in which the awaited rank
may still answer: then the group comes to the gone rank in its turn, and judges the bytes that it
left behind as it would have without this watch. So the classification of a fault depends on timing
only where the awaited rank is stuck as well.

The same holds for a write that waits because its rank does not read. There a rank from which
nothing is due is watched for anything it says, too.

Whoever wants to know when each rank answered is told here, since this is where the others are seen;
it changes nothing about who is consumed when.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Final

from errors import ContractError, MisuseError, PeerError, ProtocolError
from wire.frame import Buffer, Side
from wire.link import Link, Pipe
from wire.session import TABLE
from wire.socket_pipe import late_send

# Many times what a healthy rank needs between two frames of a small model, and far below a second.
GRACE_MS: Final = 250
# What a rank says although nothing is due is read for this long, to be named in the failure.
UNDUE_READ_MS: Final = 250
_POLL_MS_MAX: Final = 3_600_000.0
_NEWS: Final = select.POLLIN | select.POLLRDHUP


# Told of a rank, and its link, that has answered while another is awaited; perhaps repeatedly.
Arrived = Callable[[int, Link], None]


def watch(links: Sequence[Link], arrived: Arrived | None = None) -> None:
    """From here on every wait on one of these links notices the end of another.

    arrived: then it also notices what others have sent. Without it nothing is spent on that.
    """
    pipes = [link.pipe for link in links]
    if any(pipe.fileno() < 0 for pipe in pipes):
        raise MisuseError("only pipes with descriptors can be watched")
    for rank, link in enumerate(links):
        if arrived is None:
            others = _Watch(rank, links, pipes)
        else:
            others = _TellingWatch(rank, links, pipes, arrived)
        link.pipe = _WatchedPipe(pipes[rank], others)


def judge_undue(link: Link) -> PeerError:
    """What a rank that is not due has to say: the end of its stream, or a frame out of turn.

    The failure is recorded with its link; waits UNDUE_READ_MS at most.
    """
    try:
        link.receive(deadline=link.pipe.clock() + UNDUE_READ_MS / 1000)
    except PeerError as failure:
        return failure
    return link.fail(ContractError("kind", "a frame came although nothing was due"))


class _Watch:
    """The wait for one rank."""

    def __init__(self, rank: int, links: Sequence[Link], pipes: Sequence[Pipe]) -> None:
        self._rank = rank
        self._links = links
        self._descriptors = [pipe.fileno() for pipe in pipes]
        self._awaited = select.poll()
        self._awaited.register(self._descriptors[rank], select.POLLIN)
        self._all = select.poll()
        for other, descriptor in enumerate(self._descriptors):
            # Of the others POLLRDHUP alone: what they have sent early must not end the wait.
            self._all.register(descriptor, select.POLLIN if other == rank else select.POLLRDHUP)

    def until_readable(self, deadline: float) -> None:
        """Returns when there is something to read, or at the deadline.

        Raises ProtocolError `protocol.closed` of a rank that has gone, recorded with its link.
        """
        ready = [descriptor for descriptor, _ in self._all.poll(_milliseconds(deadline))]
        if not ready or self._descriptors[self._rank] in ready:
            return
        self._judge_gone(ready, deadline)

    def _judge_gone(self, descriptors: Sequence[int], deadline: float) -> None:
        if self._awaited.poll(min(GRACE_MS, _milliseconds(deadline))):
            return
        gone = min(map(self._descriptors.index, descriptors))
        raise self._closed(gone)

    def _closed(self, gone: int) -> PeerError:
        link = self._links[gone]
        message = f"its connection ended while rank {self._rank} was awaited"
        return link.fail(ProtocolError("closed", message, errno=link.pipe.broken_by()))

    def send_rest(self, pipe: Pipe, pending: Sequence[Buffer], deadline: float) -> None:
        """Write what is left of a frame for which there was no room.

        The first other rank that has gone, or speaks out of turn, ends the wait after the grace.
        Raises DeadlineError `send`, or that rank's PeerError, recorded with its link.
        """
        mine, poller = self._descriptors[self._rank], self._send_poller()
        failed: int | None = None
        until = deadline
        early = self._early()
        while pending:
            ready = [at for at, _ in poller.poll(0 if early else _milliseconds(until))]
            others = early + [self._descriptors.index(at) for at in ready if at != mine]
            if others:
                # From here on only the written rank is looked at, which ends this branch.
                failed, early = min(others), []
                until = min(deadline, time.monotonic() + GRACE_MS / 1000)
                poller = select.poll()
                poller.register(mine, select.POLLOUT)
            elif ready:
                pending = pipe.send_some(pending)
            elif failed is None:
                raise late_send(pending)
            else:
                link = self._links[failed]
                raise self._closed(failed) if _due(link) else judge_undue(link)

    def _send_poller(self) -> select.poll:
        poller = select.poll()
        for other, (descriptor, link) in enumerate(
            zip(self._descriptors, self._links, strict=True)
        ):
            watched = select.POLLRDHUP if _due(link) else _NEWS
            poller.register(descriptor, select.POLLOUT if other == self._rank else watched)
        return poller

    def _early(self) -> list[int]:
        """Other ranks of which a frame out of turn has been read already."""
        return [
            other
            for other, link in enumerate(self._links)
            if other != self._rank and link.connection.has_news and not _due(link)
        ]


class _TellingWatch(_Watch):
    """The same wait; on the way it tells who has answered."""

    def __init__(
        self, rank: int, links: Sequence[Link], pipes: Sequence[Pipe], arrived: Arrived
    ) -> None:
        super().__init__(rank, links, pipes)
        self._arrived = arrived
        for other, descriptor in enumerate(self._descriptors):
            if other != rank:
                self._all.modify(descriptor, _NEWS)

    def until_readable(self, deadline: float) -> None:
        """See `_Watch.until_readable`. Others that have answered are looked at once per wait."""
        mine, poll = self._descriptors[self._rank], self._all
        ready = poll.poll(_milliseconds(deadline))
        if not ready or (len(ready) == 1 and ready[0][0] == mine):
            return
        told: list[int] = []
        try:
            while ready and not self._judged(ready, deadline):
                for descriptor, _ in ready:
                    poll.modify(descriptor, select.POLLRDHUP)
                    told.append(descriptor)
                ready = poll.poll(_milliseconds(deadline))
        finally:
            for descriptor in told:
                poll.modify(descriptor, _NEWS)

    def _judged(self, ready: Sequence[tuple[int, int]], deadline: float) -> bool:
        """Whether the wait is over: the awaited rank has answered, or another has gone."""
        mine, answered = self._descriptors[self._rank], False
        gone: list[int] = []
        for descriptor, event in ready:
            if descriptor == mine:
                answered = True
                continue
            if event & select.POLLIN:
                rank = self._descriptors.index(descriptor)
                self._arrived(rank, self._links[rank])
            if event & ~select.POLLIN:
                gone.append(descriptor)
        if gone and not answered:
            self._judge_gone(gone, deadline)
        return answered or bool(gone)


class _WatchedPipe(Pipe):
    """A rank's pipe whose reads wait with the others in view; everything else is the pipe's."""

    def __init__(self, pipe: Pipe, others: _Watch) -> None:
        self._pipe = pipe
        self._watch = others

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        pending = self._pipe.send_some(buffers)
        if pending:
            self._watch.send_rest(self._pipe, pending, deadline)

    def send_some(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        return self._pipe.send_some(buffers)

    def receive(self, limit: int, deadline: float) -> bytes:
        self._watch.until_readable(deadline)
        return self._pipe.receive(limit, deadline)

    def receive_into(self, space: memoryview, deadline: float) -> int:
        self._watch.until_readable(deadline)
        return self._pipe.receive_into(space, deadline)

    def broken_by(self) -> int | None:
        return self._pipe.broken_by()

    def clock(self) -> float:
        return self._pipe.clock()

    def fileno(self) -> int:
        return self._pipe.fileno()

    def close(self) -> None:
        self._pipe.close()


def _due(link: Link) -> bool:
    """Whether a frame may come from this rank now."""
    return TABLE[link.connection.session.state].sender is Side.WORKER


def _milliseconds(deadline: float) -> float:
    return min(1000 * max(0.0, deadline - time.monotonic()), _POLL_MS_MAX)
