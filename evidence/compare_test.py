"""Planted differences are named: the file, the place, both values; never only a digest."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import pytest

from evidence.compare import NOTHING, differences, explain
from evidence.package import CASES, FIGURE, LEDGER, MANIFEST, OUTPUT, REPORT, SUMMARY, TAPE
from wire.frame import Kind, Side, encode
from wire.tape import TapeRecord, write_tape

CASE = "cases/clean-r1-b1-t1-s1-rank"


def _frame(payload: bytes, sequence: int = 3, tensor: str = "y") -> bytes:
    metadata = b'{"dtype":"<f4","tensor":"%s"}' % tensor.encode()
    _, buffers = encode(
        Kind.RESULT, flags=0, epoch=1, sequence=sequence, metadata=metadata, payload=payload
    )
    return b"".join(buffers)


def _tape(*frames: bytes, rank: int = 0) -> bytes:
    return write_tape(TapeRecord(Side.WORKER, rank, raw) for raw in frames)


def _json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


HELLO = _frame(b"", 0)
FLOATS = struct.pack("<3f", 1.0, 2.0, 3.0)
NEARLY = struct.pack("<3f", 1.0, 2.5, 3.0)


@dataclass(frozen=True)
class Planted:
    """where: the beginning of the place that must be named. left, right: must be in the values."""

    path: str
    left: bytes | None
    right: bytes | None
    where: str
    values: tuple[str, str]


PLANTED = {
    "a missing file": Planted(f"{CASE}/{OUTPUT}", FLOATS, None, "", ("12 bytes", NOTHING)),
    "an element of a payload": Planted(
        f"{CASE}/{TAPE}",
        _tape(HELLO, _frame(FLOATS)),
        _tape(HELLO, _frame(NEARLY)),
        "record 1",
        ("2.0", "2.5"),
    ),
    "a header field": Planted(
        f"{CASE}/{TAPE}",
        _tape(HELLO, _frame(FLOATS)),
        _tape(HELLO, _frame(FLOATS, sequence=4)),
        "record 1",
        ("3", "4"),
    ),
    "a key of metadata": Planted(
        f"{CASE}/{TAPE}",
        _tape(_frame(FLOATS)),
        _tape(_frame(FLOATS, tensor="z")),
        "record 0",
        ('"y"', '"z"'),
    ),
    "a frame too few": Planted(
        f"{CASE}/{TAPE}", _tape(HELLO, HELLO), _tape(HELLO), "record 1", ("from worker", NOTHING)
    ),
    "another rank": Planted(
        f"{CASE}/{TAPE}", _tape(HELLO), _tape(HELLO, rank=2), "record 0", ("rank 0", "rank 2")
    ),
    "no tape": Planted(f"{CASE}/{TAPE}", _tape(HELLO), b"x", "a tape begins", ("bytes", "1 bytes")),
    "an element of an output": Planted(
        f"{CASE}/{OUTPUT}", FLOATS, NEARLY, "element 1", ("2.0", "2.5")
    ),
    "a key of a ledger entry": Planted(
        f"{CASE}/{LEDGER}",
        _json({"index": 0}) + _json({"index": 1, "phase": "mlp"}),
        _json({"index": 0}) + _json({"index": 1, "phase": "load"}),
        "entry 1: phase",
        ('"mlp"', '"load"'),
    ),
    "a key of a case": Planted(
        CASES,
        _json({"case": "clean", "outcome": "ok"}),
        _json({"case": "clean", "outcome": "contract"}),
        "clean: outcome",
        ('"ok"', '"contract"'),
    ),
    "a nested number": Planted(
        SUMMARY,
        _json({"clean": {"frames": 1}}),
        _json({"clean": {"frames": 2}}),
        "clean.frames",
        ("1", "2"),
    ),
    "a boolean for a number": Planted(
        SUMMARY, _json({"total": 1}), _json({"total": True}), "total", ("1", "true")
    ),
    "a source": Planted(
        MANIFEST,
        _json({"source": {"files": {"wire/frame.py": "a"}}}),
        _json({"source": {"files": {}}}),
        "source.files.wire/frame.py",
        ('"a"', NOTHING),
    ),
    "no JSON": Planted(SUMMARY, b"{}\n", b"{\n", "line 1", ("{}", "{")),
    "a line of the report": Planted(REPORT, b"a\nb\n", b"a\nc\n", "line 2", ("b", "c")),
    "an attribute of the figure": Planted(
        FIGURE, b'<g cx="1.0"/>', b'<g cx="2.0"/>', "line 1", ('"1.0"', '"2.0"')
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_named(name: str) -> None:
    planted = PLANTED[name]
    left, right = (
        {planted.path: data} if data is not None else {} for data in (planted.left, planted.right)
    )
    (found, *_) = differences(left, right)
    assert found.path == planted.path
    assert found.where.startswith(planted.where)
    assert planted.values[0] in found.left
    assert planted.values[1] in found.right
    of_case = {CASE: "clean-r1-b1-t1-s1-rank", CASES: "clean"}
    assert found.case_id == of_case.get(planted.path.rpartition("/")[0] or planted.path)


def test_equal_packages_differ_nowhere() -> None:
    files = {MANIFEST: b"{}\n", FIGURE: b"<svg/>"}
    assert differences(files, dict(files)) == []
    assert explain(files, dict(files)) == ""


def test_causes_come_before_what_follows_from_them() -> None:
    left = {MANIFEST: _json({"a": 1}), REPORT: b"a", f"{CASE}/{OUTPUT}": FLOATS, CASES: b"{}\n"}
    right = dict.fromkeys(left, b"?")
    paths = [difference.path for difference in differences(left, right)]
    assert list(dict.fromkeys(paths)) == [f"{CASE}/{OUTPUT}", CASES, REPORT, MANIFEST]


def test_a_flood_is_cut_and_counted() -> None:
    left = {f"notes-{number}": b"a" for number in range(30)}
    lines = explain(left, {}, limit=5).splitlines()
    assert len(lines) == 6
    assert "25" in lines[-1]
