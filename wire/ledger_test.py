"""S12 and S14: lines written and read back, and every key of a foreign ledger judged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import EvidenceError
from testdata.vectors.reading import vectors
from wire.ledger import LINE_BYTES_MAX, Entry, parse_line, read_ledger, totals

VECTORS = vectors("ledger.json")
LINES = VECTORS[0]["ledger"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["id"]))
def test_vector(vector: dict[str, Any]) -> None:
    data = "".join(line + "\n" for line in vector["ledger"]).encode("ascii")
    entries = read_ledger(data)
    assert b"".join(entry.to_line() for entry in entries) == data
    assert totals(entries)._asdict() == vector["totals"]


def test_an_empty_ledger() -> None:
    assert read_ledger(b"") == []
    assert totals([]) == (0, 0, 0)


WRONG: dict[str, list[Any]] = {
    "index": [None, -1, 1, True, "0"],
    "direction": [None, "sent", 0, []],
    "rank": [None, -1, 65_536, True],
    "kind": ["hello", 1, "", [], {}],
    "flags": [-1, 65_536, False],
    "epoch": [-1, 2**64, "1"],
    "sequence": [-1, 2**64],
    "state": [None, "new", "OPENED", [], {}],
    "phase": [None, 0, "x" * 257],
    "tensor": [0, "x" * 257],
    "shape": [[], [1, 2, 3, 4, 5], [-1], [True], "1", {"0": 1}, [2**53]],
    "metadata_bytes": [-1, 2**32, 1.5],
    "payload_bytes": [-1, 2**32],
    "checksum": [-1, 2**32],
    "payload_sha256": ["", "0" * 63, "G" * 64, "0" * 65, 0],
    "error": [0, [], "x" * 257],
}
CASES = [(key, value) for key, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("key", "value"), CASES, ids=repr)
def test_a_wrong_value_is_refused(key: str, value: Any) -> None:
    assert_refused(spell(json.loads(LINES[0]) | {key: value}))


@pytest.mark.parametrize("key", WRONG)
def test_exact_keys(key: str) -> None:
    good = json.loads(LINES[0])
    assert good.keys() == WRONG.keys() == {*Entry.__slots__}
    assert_refused(spell({name: value for name, value in good.items() if name != key}))
    assert_refused(spell(good | {key + "_": None}))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"null\n",
        b"[" * 3000 + b"\n",
        b"{}\n",
        b"\xff\n",
        LINES[0].encode() + b" \n",
        b" " + LINES[0].encode() + b"\n",
        LINES[0].encode() + b"\r\n",
        LINES[0].encode(),
        LINES[0].replace('"direction":', '"direction":"send","direction":').encode() + b"\n",
        LINES[0].encode() + b" " * LINE_BYTES_MAX + b"\n",
        b'{"index":' + b"9" * 5000 + b"}\n",
    ],
)
def test_a_line_in_another_form_is_refused(line: bytes) -> None:
    assert_refused(line)


def test_an_index_is_the_position() -> None:
    with pytest.raises(EvidenceError):
        read_ledger((LINES[0] + "\n" + LINES[0] + "\n").encode())
    with pytest.raises(EvidenceError):
        read_ledger((LINES[0] + "\n" + LINES[1]).encode())


def spell(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"


def assert_refused(line: bytes) -> None:
    with pytest.raises(EvidenceError) as refused:
        parse_line(line, 0)
    assert refused.value.code == "evidence.ledger"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_ledger_or_a_finding(data: bytes) -> None:
    for ledger in (data, data + b"\n", LINES[0].encode() + b"\n" + data):
        try:
            entries = read_ledger(ledger)
        except EvidenceError:
            continue
        assert b"".join(entry.to_line() for entry in entries) == ledger
