"""Vectors of docs/spec/session.md S7 and S10 to S14: conversations, their ledgers and tapes."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

from testdata.vectors.vector_file import (
    KINDS,
    TENSOR_KINDS,
    VectorFile,
    canonical,
    frame,
    tensor_metadata,
)

NOTES = {
    "Clean": "A conversation that comes to its end.",
    "FailedWait": "Nothing came, or not all of a frame: what is known is recorded (S12).",
    "RefusedBytes": "Exactly the bytes consumed for the refused frame are on the tape (S13).",
    "RefusedFrame": "A frame that was read and is not the agreed one.",
    "Unsigned64": "Header fields beyond the range of M1.",
}
SHAPE = [1, 1, 2]
FLOATS = struct.pack("<2f", 0.5, -0.25)
SUM = struct.pack("<2f", 1.0, -0.5)
EPOCH = 3
WEIGHT = tensor_metadata("load", "w", [2])
INPUT = tensor_metadata("input", "x", SHAPE)
PARTIAL = tensor_metadata("only", "only.partial", SHAPE)
TOTAL = tensor_metadata("only", "only.total", SHAPE)
FENCE = canonical({"phase": "only", "rank": 0, "report": None, "tensors": 1})
COMMAND = canonical({"phase": "only", "plan": None, "rank": 0, "step": 0})
RESULT = tensor_metadata("result", "y", SHAPE, report=None, step=0)
HELLO = canonical({"byte_order": "little", "dtype": "<f4", "rank": 0})
ACK = canonical(
    {
        "parameters": {},
        "program": "sample",
        "program_digest": "00" * 32,
        "rank": 0,
        "world_size": 1,
    }
)
# Direction, kind, state and phase before the frame, epoch, sequence, metadata, payload.
CONVERSATION: tuple[tuple[str, str, str, str, int, int, bytes, bytes], ...] = (
    ("receive", "HELLO", "NEW", "hello", 0, 0, HELLO, b""),
    ("send", "ACK", "GREETED", "hello", EPOCH, 0, ACK, b""),
    ("send", "WEIGHT", "LOADING", "load", EPOCH, 1, WEIGHT, FLOATS),
    ("send", "INPUT", "LOADING", "load", EPOCH, 2, INPUT, FLOATS),
    ("send", "COMMAND", "FED", "load", EPOCH, 3, COMMAND, b""),
    ("receive", "PARTIAL", "OPEN", "only", EPOCH, 1, PARTIAL, FLOATS),
    ("receive", "FENCE", "PARTIAL_SENT", "only", EPOCH, 2, FENCE, b""),
    ("send", "REDUCTION", "FENCED", "only", EPOCH, 4, TOTAL, SUM),
    ("receive", "RESULT", "LAST", "result", EPOCH, 3, RESULT, SUM),
)
AT_HELLO, AT_ACK, AT_WEIGHT, AT_PARTIAL, AT_FENCE, AT_RESULT = 0, 1, 2, 5, 6, 8


class Run:
    """Collects the events of one conversation and what they must leave behind."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.entries: list[dict[str, Any]] = []
        self.tape = b"RKPTAPE1"

    def good(self, at: int) -> None:
        """The conversation's frame, accepted."""
        _, kind, _, _, epoch, sequence, metadata, payload = CONVERSATION[at]
        raw = frame(kind, metadata, payload, epoch=epoch, sequence=sequence)
        self.event(at, raw)
        self.entry(at, raw, error=None)

    def event(self, at: int, raw: bytes, then: str | None = None, cause: str | None = None) -> None:
        """One step for the reader of the vector; `then` is what stops it."""
        direction, kind, _, _, _, _, metadata, payload = CONVERSATION[at]
        event: dict[str, Any] = {
            "do": direction,
            "kind": kind,
            "metadata": metadata.decode("ascii"),
        }
        if direction == "send":
            event |= {"payload": payload.hex()}
        self.events.append(event | {"bytes": raw.hex(), "then": then, "cause": cause})

    def entry(
        self, at: int, raw: bytes, *, error: str | None, header: bool = True, read: bool = True
    ) -> None:
        """One line and one record. header, read: whether the frame came that far (F7)."""
        direction, _, state, phase, *_ = CONVERSATION[at]
        values: dict[str, Any] = dict.fromkeys(
            ("kind", "flags", "epoch", "sequence", "metadata_bytes", "payload_bytes", "checksum")
        )
        tensor = shape = digest = None
        if header:
            fields = struct.unpack("!4sBBHQQIII", raw[:36])
            values = dict(zip(values, (KINDS[fields[2] - 1], *fields[3:]), strict=True))
            if read and values["kind"] in TENSOR_KINDS:
                keys = _keys(raw[36 : 36 + values["metadata_bytes"]])
                tensor, shape = keys.get("tensor"), keys.get("shape")
                payload = raw[36 + values["metadata_bytes"] :]
                digest = hashlib.sha256(payload).hexdigest() if error is None else None
        self.entries.append(
            {
                "index": len(self.entries),
                "direction": direction,
                "rank": 0,
                "state": state,
                "phase": phase,
                "tensor": tensor,
                "shape": shape,
                "payload_sha256": digest,
                "error": error,
                **values,
            }
        )
        self.tape += struct.pack("!BHI", direction == "receive", 0, len(raw)) + raw

    def vector(self, comment: str, flag: str, code: str | None) -> dict[str, Any]:
        with_header = [entry for entry in self.entries if entry["kind"] is not None]
        return {
            "comment": comment,
            "flags": [flag],
            "events": self.events,
            "result": "valid" if code is None else "invalid",
            "code": code,
            "ledger": [canonical(entry).decode("ascii") for entry in self.entries],
            "tape": self.tape.hex(),
            "totals": {
                "payload_bytes": sum(entry["payload_bytes"] for entry in with_header),
                "header_bytes": 36 * len(with_header),
                "metadata_bytes": sum(entry["metadata_bytes"] for entry in with_header),
            },
        }


def _keys(metadata: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(metadata)
    return value


def ledger_vectors() -> VectorFile:
    """The clean conversation, then one failure of each kind at the places where it matters."""
    vectors = [_clean(), *_waits(), *_unread(), *_read()]
    return VectorFile(
        "The coordinator's side of a conversation with rank 0: send a frame, or receive bytes and "
        "demand metadata, until `then` (end: the stream ends; deadline: the deadline passes). The "
        "ledger lines, the tape and the totals of the run follow.",
        NOTES,
        [{"id": f"ledger-{at:03}", **vector} for at, vector in enumerate(vectors, 1)],
        {"phases": ["only"], "folded": False, "first_epoch": EPOCH, "rank": 0},
    )


def _clean() -> dict[str, Any]:
    run = Run()
    for at in range(len(CONVERSATION)):
        run.good(at)
    return run.vector("a whole conversation", "Clean", None)


def _until(at: int) -> Run:
    run = Run()
    for before in range(at):
        run.good(before)
    return run


def _waits() -> Iterator[dict[str, Any]]:
    for at in (AT_HELLO, AT_PARTIAL, AT_FENCE, AT_RESULT):
        kind = CONVERSATION[at][1]
        for then, code in (("end", "protocol.closed"), ("deadline", "deadline.receive")):
            code = "deadline.handshake" if (at, then) == (AT_HELLO, "deadline") else code
            run = _until(at)
            run.event(at, b"", then, code)
            run.entry(at, b"", error=code, header=False)
            yield run.vector(f"instead of {kind}: {then}", "FailedWait", code)
    whole = frame("PARTIAL", PARTIAL, FLOATS, epoch=EPOCH, sequence=1)
    for size in (20, 36, 60, len(whole) - 1):
        for then, code in (("end", "protocol.truncated"), ("deadline", "deadline.receive")):
            run = _until(AT_PARTIAL)
            run.event(AT_PARTIAL, whole[:size], then, code)
            run.entry(AT_PARTIAL, whole[:size], error=code, header=size >= 36, read=False)
            yield run.vector(f"PARTIAL stops after {size} bytes: {then}", "FailedWait", code)
    for at in (AT_ACK, AT_WEIGHT):
        _, kind, _, _, epoch, sequence, metadata, payload = CONVERSATION[at]
        whole = frame(kind, metadata, payload, epoch=epoch, sequence=sequence)
        code = "deadline.handshake" if at == AT_ACK else "deadline.send"
        run = _until(at)
        run.event(at, whole, "deadline", code)
        run.entry(at, whole, error=code)
        yield run.vector(f"{kind} cannot be written in time", "FailedWait", code)


def _unread() -> Iterator[dict[str, Any]]:
    """F7: the frame is refused, and bytes after its end are not part of it."""
    after = b"\xee" * 50

    def refused(
        comment: str, code: str, raw: bytes, ignored: bytes, header: bool
    ) -> dict[str, Any]:
        run = _until(AT_PARTIAL)
        run.event(AT_PARTIAL, raw + ignored, "refused", code)
        run.entry(AT_PARTIAL, raw, error=code, header=header, read=False)
        return run.vector(comment, "RefusedBytes", code)

    def partial(**wrong: Any) -> bytes:
        return frame("PARTIAL", PARTIAL, FLOATS, epoch=EPOCH, sequence=1, **wrong)

    yield refused("another protocol", "protocol.magic", b"RKX", after, False)
    for code, header, wrong in (
        ("protocol.version", False, {"version": 2}),
        ("protocol.malformed", False, {"kind": 99}),
        ("protocol.flags", True, {"flags": 6}),
        ("protocol.size", True, {"payload_bytes": 2**32 - 1}),
    ):
        whole = partial(**wrong)
        yield refused(f"refused at the header: {code}", code, whole[:36], whole[36:], header)
    flipped = bytearray(partial())
    flipped[-1] ^= 1
    yield refused("a flipped bit", "protocol.checksum", bytes(flipped), after, True)
    spaced = frame("PARTIAL", PARTIAL + b" ", FLOATS, epoch=EPOCH, sequence=1)
    yield refused("another spelling", "protocol.not_canonical", spaced, after, True)
    binary = frame("PARTIAL", b"\x00\x01", FLOATS, epoch=EPOCH, sequence=1)
    yield refused("metadata is not JSON", "protocol.malformed", binary, after, True)


def _read() -> Iterator[dict[str, Any]]:
    """Frames that pass F7 and are not the agreed ones."""
    other_rank = tensor_metadata("only", "only.partial", SHAPE, rank=1)
    unnamed = tensor_metadata("only", "", [-1], tensor=0)
    long_name = tensor_metadata("only", "n" * 257, SHAPE)
    build: Callable[..., bytes] = frame
    for comment, code, raw in (
        ("a stale epoch", "contract.epoch", build("PARTIAL", PARTIAL, FLOATS, epoch=2, sequence=1)),
        (
            "a repeated sequence",
            "contract.sequence",
            build("PARTIAL", PARTIAL, FLOATS, epoch=EPOCH),
        ),
        ("a missing partial", "contract.fence", build("FENCE", FENCE, epoch=EPOCH, sequence=1)),
        (
            "a result too early",
            "contract.kind",
            build("RESULT", RESULT, SUM, epoch=EPOCH, sequence=1),
        ),
        (
            "of another rank",
            "contract.metadata",
            build("PARTIAL", other_rank, FLOATS, epoch=EPOCH, sequence=1),
        ),
        (
            "a name that is no string and a shape that is none",
            "contract.metadata",
            build("PARTIAL", unnamed, FLOATS, epoch=EPOCH, sequence=1),
        ),
        (
            "a name of 257 characters",
            "contract.metadata",
            build("PARTIAL", long_name, FLOATS, epoch=EPOCH, sequence=1),
        ),
        (
            "a payload that does not fit its shape",
            "contract.metadata",
            build("PARTIAL", PARTIAL, FLOATS[:4], epoch=EPOCH, sequence=1),
        ),
    ):
        yield _refused_after_reading(comment, "RefusedFrame", code, raw)
    top = 2**64 - 1
    raw = frame("PARTIAL", PARTIAL, FLOATS, epoch=top, sequence=top)
    yield _refused_after_reading("largest header fields", "Unsigned64", "contract.epoch", raw)


def _refused_after_reading(comment: str, flag: str, code: str, raw: bytes) -> dict[str, Any]:
    run = _until(AT_PARTIAL)
    run.event(AT_PARTIAL, raw + b"\xee" * 9, "refused", code)
    run.entry(AT_PARTIAL, raw, error=code)
    entry = run.entries[-1]
    if not isinstance(entry["tensor"], str) or len(entry["tensor"]) > 256:
        entry["tensor"] = None
    if entry["shape"] and min(entry["shape"]) < 0:
        entry["shape"] = None
    return run.vector(comment, flag, code)
