"""A job's deltas as the events of its stream."""

from __future__ import annotations

from coordinator.serving.choice import Choice
from coordinator.serving.errors_http import error_json, json_bytes
from coordinator.serving.generation import Delta
from coordinator.serving.job import Job
from coordinator.serving.parameters import Common
from coordinator.serving.shapes import DONE, Chunks, Json, Shape, error_event, usage
from coordinator.serving.stream import EventStream


class EventWriter:
    """A `Listener`. described: what every chunk of the job says of itself."""

    def __init__(
        self, job: Job, shape: Shape, described: Json, common: Common, stream: EventStream
    ) -> None:
        self._job = job
        self._shape = shape
        self._common = common
        self._stream = stream
        self._chunks = Chunks(described, include_usage=common.include_usage)
        # By choice: what stands before and after a text of which nothing else is told.
        self._around: dict[int, tuple[bytes, bytes]] = {}
        for choice in job.choices:
            opening = shape.opening(choice)
            if opening is not None:
                stream.write(self._chunks.chunk(opening))

    def said(self, choice: Choice, delta: Delta) -> None:
        """See `Listener`."""
        if delta.records:
            self._stream.write(self._chunks.chunk(self._shape.piece(choice, delta)))
            return
        around = self._around.get(choice.index)
        if around is None:
            around = self._chunks.around(lambda text: self._shape.piece(choice, Delta(text)))
            self._around[choice.index] = around
        self._stream.write(around[0] + json_bytes(delta.text) + around[1])

    def ended(self, choice: Choice) -> None:
        """See `Listener`."""
        end = self._shape.end(choice)
        if self._common.timings:
            self._stream.write(self._chunks.timed_chunk(end, choice.timings()))
        else:
            self._stream.write(self._chunks.chunk(end))

    def settled(self) -> None:
        """After a failure there is an error and no `[DONE]`."""
        error = self._job.error
        if error is not None:
            self._stream.write(error_event(error_json(error)))
        else:
            if self._common.include_usage:
                self._stream.write(self._chunks.usage_chunk(usage(self._job.choices)))
            self._stream.write(DONE)
        self._stream.end()
