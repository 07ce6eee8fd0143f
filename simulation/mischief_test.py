"""Each mischief strikes one frame, and does to it what it says."""

from __future__ import annotations

import pytest

from errors import ProtocolError
from simulation.faults import Parts, take_apart
from simulation.mischief import MISCHIEFS, rewriting
from wire.frame import Kind, encode
from wire.frame_reader import FrameReader


def frame(kind: Kind, sequence: int = 3) -> bytes:
    metadata = b'{"phase":"mlp","rank":1}'
    payload = b"\x01\x02\x03\x04" if kind.is_tensor else b""
    _, buffers = encode(
        kind, flags=0, epoch=1, sequence=sequence, metadata=metadata, payload=payload
    )
    return b"".join(buffers)


def read(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Sequence, metadata and payload of each frame. Raises ProtocolError."""
    reader, found = FrameReader(), []
    reader.receive_data(data)
    while (one := reader.next_frame()) is not None:
        found.append((one.header.sequence, one.metadata, bytes(one.payload)))
    return found


@pytest.mark.parametrize("name", MISCHIEFS)
def test_only_the_named_frame_is_struck(name: str) -> None:
    rewrite = rewriting(name, Kind.PARTIAL, 2)
    partial, fence = frame(Kind.PARTIAL), frame(Kind.FENCE)
    assert [rewrite(raw) for raw in (partial, fence)] == [partial, fence]
    assert rewrite(partial) != partial
    assert [rewrite(raw) for raw in (fence, partial)] == [fence, partial]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("http", "protocol.magic"),
        ("newer_version", "protocol.version"),
        ("huge", "protocol.size"),
        ("spaced", "protocol.not_canonical"),
    ],
)
def test_what_no_reader_takes(name: str, code: str) -> None:
    with pytest.raises(ProtocolError) as refusal:
        read(MISCHIEFS[name](*_struck()))
    assert refusal.value.code == code


def _struck() -> tuple[Parts, bytes]:
    raw = frame(Kind.PARTIAL)
    return take_apart(raw), raw


def test_what_is_well_formed_and_wrong() -> None:
    plain = (3, b'{"phase":"mlp","rank":1}', b"\x01\x02\x03\x04")
    made = {name: read(MISCHIEFS[name](*_struck())) for name in ("repeats", "drops", "other_value")}
    assert made["repeats"] == [plain, (4, *plain[1:])]
    assert made["drops"] == []
    assert made["other_value"] == [(*plain[:2], b"\x00\x02\x03\x04")]
    (stray,) = read(MISCHIEFS["stray"](*_struck()))
    (extra,) = read(MISCHIEFS["extra_key"](*_struck()))
    assert stray[1] == b'{"phase":"mlp","rank":7}'
    assert extra[1] == b'{"note":"hello","phase":"mlp","rank":1}'
