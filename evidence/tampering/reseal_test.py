"""Sealing again what was not altered changes nothing; sealing what was leaves no digest behind."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from evidence.package import CASES, MANIFEST
from evidence.record import sha256_hex
from evidence.tampering import reseal
from evidence.tampering.committed import committed_files
from evidence.tampering.taped import (
    Files,
    Taped,
    metadata_of,
    nudged,
    payload_of,
    read_taped,
    with_body,
)

CASE = "clean-r2-b1-t2-s1-rank"
FAULT = "fault-truncated_frame-mlp-s2"
NOTHING: dict[str, Callable[[Files], None]] = {
    "a tape": lambda files: reseal.edit_tape(files, CASE, lambda tape: None),
    "a tape that breaks off": lambda files: reseal.edit_tape(files, FAULT, lambda tape: None),
    "a record": lambda files: reseal.edit_record(files, CASE),
    "the manifest": lambda files: reseal.edit_json(files, MANIFEST, lambda document: None),
    "the report": lambda files: reseal.rewrite_report(files),
}


@pytest.mark.parametrize("name", NOTHING)
def test_no_change_is_no_change(name: str) -> None:
    files = dict(committed_files())
    NOTHING[name](files)
    assert files == committed_files()


def test_a_frame_with_the_same_body_is_the_same_frame() -> None:
    for taped in read_taped(dict(committed_files()), CASE):
        assert with_body(taped, metadata_of(taped), payload_of(taped)) == taped


def test_every_digest_follows_an_altered_frame() -> None:
    files = dict(committed_files())

    def edit(tape: list[Taped]) -> None:
        tape[-1] = with_body(tape[-1], payload=nudged(payload_of(tape[-1])))

    reseal.edit_tape(files, CASE, edit)
    listed = json.loads(files[MANIFEST])["files"]
    assert {path: entry["sha256"] for path, entry in listed.items()} == {
        path: sha256_hex(data) for path, data in files.items() if path != MANIFEST
    }
    (record,) = [r for r in map(json.loads, files[CASES].splitlines()) if r["case"] == CASE]
    assert record["tape_sha256"] == listed[f"cases/{CASE}/tape.bin"]["sha256"]
    assert record["ledger_sha256"] == listed[f"cases/{CASE}/ledger.jsonl"]["sha256"]
    assert files[CASES] != committed_files()[CASES]


def test_text_that_is_not_there_can_not_be_replaced() -> None:
    with pytest.raises(KeyError):
        reseal.replace_text(dict(committed_files()), MANIFEST, "no such text", "")
