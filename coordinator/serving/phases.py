"""Where a service can be, and what moves it: the table is the whole truth."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import Final

from coordinator.serving.served import Phase
from errors import MisuseError


class PhaseEvent(Enum):
    """What can happen to a service. FAIL: of a rank, or of its load. END: the last one."""

    LOAD = "load"
    LOADED = "loaded"
    FAIL = "fail"
    RESTART = "restart"
    STOP = "stop"
    END = "end"


_PHASE = Phase
_EVENT = PhaseEvent

# STOP may come at any time; what it finds ended or stopping stays so, and a rank that fails while
# the service stops changes nothing about that.
TABLE: Final = MappingProxyType(
    {
        _PHASE.STARTING: {
            _EVENT.LOAD: _PHASE.LOADING,
            _EVENT.STOP: _PHASE.STOPPING,
            _EVENT.END: _PHASE.ENDED,
        },
        _PHASE.LOADING: {
            _EVENT.LOADED: _PHASE.SERVING,
            _EVENT.FAIL: _PHASE.FAILED,
            _EVENT.STOP: _PHASE.STOPPING,
            _EVENT.END: _PHASE.ENDED,
        },
        _PHASE.SERVING: {
            _EVENT.FAIL: _PHASE.FAILED,
            _EVENT.STOP: _PHASE.STOPPING,
            _EVENT.END: _PHASE.ENDED,
        },
        _PHASE.FAILED: {
            _EVENT.RESTART: _PHASE.RESTARTING,
            _EVENT.STOP: _PHASE.STOPPING,
            _EVENT.END: _PHASE.ENDED,
        },
        _PHASE.RESTARTING: {
            _EVENT.LOAD: _PHASE.LOADING,
            _EVENT.STOP: _PHASE.STOPPING,
            _EVENT.END: _PHASE.ENDED,
        },
        _PHASE.STOPPING: {
            _EVENT.LOAD: _PHASE.STOPPING,
            _EVENT.LOADED: _PHASE.STOPPING,
            _EVENT.FAIL: _PHASE.STOPPING,
            _EVENT.RESTART: _PHASE.STOPPING,
            _EVENT.STOP: _PHASE.STOPPING,
            _EVENT.END: _PHASE.ENDED,
        },
        _PHASE.ENDED: {_EVENT.STOP: _PHASE.ENDED},
    }
)


def following(phase: Phase, event: PhaseEvent) -> Phase:
    """The next phase. Raises MisuseError where the table has no entry."""
    found = TABLE[phase].get(event)
    if found is None:
        raise MisuseError(f"a service that is {phase.value} can't {event.value}")
    return found
