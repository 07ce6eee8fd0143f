from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.frame_difference import NOTHING, FieldDifference, find_difference
from wire.frame import Kind, encode
from wire.metadata import Fence, Tensor


def frame(
    kind: Kind = Kind.PARTIAL,
    epoch: int = 1,
    sequence: int = 1,
    tensor: str = "mlp.partial",
    values: tuple[float, ...] = (1.0, 2.0),
) -> bytes:
    metadata = Tensor("<f4", "mlp", 0, (1, 1, len(values)), tensor).to_bytes()
    payload = array("f", values).tobytes()
    if kind is Kind.FENCE:
        metadata, payload = Fence("mlp", 0, None, 1).to_bytes(), b""
    _, buffers = encode(kind, epoch=epoch, sequence=sequence, metadata=metadata, payload=payload)
    return b"".join(buffers)


GOOD = frame()


@pytest.mark.parametrize(
    ("other", "field", "taped", "replayed"),
    [
        (frame(epoch=2), "epoch", "1", "2"),
        (frame(sequence=9), "sequence", "1", "9"),
        (frame(kind=Kind.FENCE), "kind", "PARTIAL", "FENCE"),
        (frame(tensor="y"), "metadata tensor", '"mlp.partial"', '"y"'),
        (frame(values=(1.0,)), "metadata shape", "[1,1,2]", "[1,1,1]"),
        (b"HTTP" + GOOD[4:], "magic", "b'RKPF'", "b'HTTP'"),
        (GOOD[:-1], "length", f"{len(GOOD)} bytes", f"{len(GOOD) - 1} bytes"),
        (GOOD[:20], "length", f"{len(GOOD)} bytes", "20 bytes"),
        (b"", "frame", f"PARTIAL of {len(GOOD)} bytes", NOTHING),
        (GOOD[:35] + b"\0" + GOOD[36:], "checksum", None, None),
        (GOOD[:28] + b"\xff" + GOOD[29:36], "payload_bytes", "8", "4278190088"),
        (GOOD[:36] + b"[" + GOOD[37:], "metadata byte 0", "0x7b", "0x5b"),
    ],
)
def test_the_first_difference(
    other: bytes, field: str, taped: str | None, replayed: str | None
) -> None:
    found = find_difference(GOOD, other)
    assert found is not None
    assert found.field == field
    if taped is not None:
        assert (found.taped, found.replayed) == (taped, replayed)


def test_an_element_is_shown_exactly() -> None:
    found = find_difference(GOOD, frame(values=(1.0, 2.5)))
    values = ("0x1.0000000000000p+1 = 2.0", "0x1.4000000000000p+1 = 2.5")
    assert found == FieldDifference("payload element 1", *values)


@given(st.binary(max_size=150), st.binary(max_size=150))
def test_any_two_records(taped: bytes, replayed: bytes) -> None:
    assert (find_difference(taped, replayed) is None) == (taped == replayed)


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_any_changed_byte_is_a_difference(at: int, change: int) -> None:
    changed = GOOD[:at] + bytes([GOOD[at] ^ change]) + GOOD[at + 1 :]
    assert find_difference(GOOD, changed) is not None
