"""What can go wrong on a rank while it serves, beside the eight faults of the evidence.

A fault strikes once: at the frame with which the rank answers `phase` of the step with `epoch`, or,
in the phase "idle", right after that step's RESULT. It wraps a worker's pipe from outside.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from simulation.faults import (
    EPOCH_FIELD,
    Fault,
    FaultInjector,
    FaultKind,
    FaultTarget,
    Parts,
    split_frames,
    take_apart,
    with_metadata,
)
from wire.canonical import decode_canonical
from wire.frame import Buffer, Kind

IDLE_PHASE: Final = "idle"
# One byte each: a frame of a hundred bytes takes longer than any phase deadline of the tests.
DRIP_S: Final = 0.05
_OTHER_DIGEST: Final = "0" * 64


class ServingFault(StrEnum):
    KILL = "kill"
    STOP = "stop"
    EXCEPTION = "exception"
    MEMORY_ERROR = "memory_error"
    STALE_REPLY = "stale_reply"
    SLOW_DRIP = "slow_drip"
    WRONG_PLAN_DIGEST = "wrong_plan_digest"
    WRONG_STATE_DIGEST = "wrong_state_digest"
    WRONG_HIDDEN_DIGEST = "wrong_hidden_digest"
    UNDUE_FRAME = "undue_frame"


AnyFault = FaultKind | ServingFault
# Faults that need an operating system, so that the simulation has none of them.
OF_PROCESSES: Final = frozenset(
    {
        ServingFault.KILL,
        ServingFault.STOP,
        ServingFault.EXCEPTION,
        ServingFault.MEMORY_ERROR,
        ServingFault.SLOW_DRIP,
    }
)
# Those that change what a rank reports, and the phase and the key of that report.
_DIGESTS: Final = {
    ServingFault.WRONG_PLAN_DIGEST: "plan_digest",
    ServingFault.WRONG_STATE_DIGEST: "state_digest",
    ServingFault.WRONG_HIDDEN_DIGEST: "hidden_digest",
}


@dataclass(frozen=True)
class Strike:
    """kind strikes in `phase` of the step with `epoch`, on one rank of `world_size`."""

    kind: AnyFault
    phase: str
    epoch: int
    world_size: int


class ServingInjector:
    """Passes a rank's frames through to `target`, except where it strikes."""

    def __init__(self, strike: Strike, target: FaultTarget) -> None:
        self._strike = strike
        self._target = target
        self._struck = False
        # The newest frame of each kind and phase: what a stale reply repeats.
        self._sent: dict[tuple[Kind, str], bytes] = {}
        self._evidence: FaultInjector | None = None
        if isinstance(strike.kind, FaultKind):
            fault = Fault(strike.kind, strike.phase, strike.world_size, strike.epoch)
            self._evidence = FaultInjector(fault, target)

    def send(self, buffers: Sequence[Buffer]) -> None:
        """One or several whole frames. Raises RankEnded when the rank is to end here."""
        if self._evidence is not None:
            self._evidence.send(buffers)
            return
        for raw in split_frames(b"".join(buffers)):
            self._send(raw)

    def _send(self, raw: bytes) -> None:
        parts = take_apart(raw)
        phase = str(decode_canonical(parts.metadata).get("phase", ""))
        strike, due = self._strike, parts.fields[EPOCH_FIELD] == self._strike.epoch
        if due and not self._struck and phase == strike.phase:
            self._struck = True
            self._replace(parts, raw, self._sent.get((parts.kind, phase), raw))
            return
        self._target.write(raw)
        self._sent[parts.kind, phase] = raw
        if due and strike.phase == IDLE_PHASE and parts.kind is Kind.RESULT:
            self._struck = True
            self._replace(parts, b"", raw)

    def _replace(self, parts: Parts, raw: bytes, earlier: bytes) -> None:
        """raw: the frame that is due, nothing between steps. earlier: one that was due before."""
        kind = ServingFault(self._strike.kind)
        if kind in _DIGESTS:
            self._target.write(_lied(parts, _DIGESTS[kind]))
        elif kind in (ServingFault.STALE_REPLY, ServingFault.UNDUE_FRAME):
            self._target.write(earlier)
        else:
            _OF_PROCESS[kind](self._target, raw)


def _lied(parts: Parts, key: str) -> bytes:
    metadata = decode_canonical(parts.metadata)
    report = metadata["report"]
    if not isinstance(report, dict):
        raise TypeError("this frame carries no report")
    return with_metadata(parts, {**metadata, "report": {**report, key: _OTHER_DIGEST}}).joined()


def _signal(number: signal.Signals) -> Callable[[FaultTarget, bytes], None]:
    def send(target: FaultTarget, raw: bytes) -> None:
        os.kill(os.getpid(), number)

    return send


def _raise(error: Exception) -> Callable[[FaultTarget, bytes], None]:
    def fail(target: FaultTarget, raw: bytes) -> None:
        raise error

    return fail


def _drip(target: FaultTarget, raw: bytes) -> None:
    for byte in raw:
        target.write(bytes([byte]))
        time.sleep(DRIP_S)


_OF_PROCESS: Final[dict[ServingFault, Callable[[FaultTarget, bytes], None]]] = {
    ServingFault.KILL: _signal(signal.SIGKILL),
    ServingFault.STOP: _signal(signal.SIGSTOP),
    ServingFault.EXCEPTION: _raise(RuntimeError("planted")),
    ServingFault.MEMORY_ERROR: _raise(MemoryError("planted")),
    ServingFault.SLOW_DRIP: _drip,
}
