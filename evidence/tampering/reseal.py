"""Altering one thing of a package and making everything above it agree again.

From below: tape, ledger, the case's record, cases.jsonl, summary, report, figure, manifest. Whoever
wants to be found out by one check alone must redo every level above what was altered; that is what
these functions do, for tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from evidence.figure import figure
from evidence.matrix import all_cases
from evidence.package import CASES, FIGURE, LEDGER, MANIFEST, OUTPUT, REPORT, SUMMARY, TAPE
from evidence.record import scientific, sha256_hex
from evidence.report import report
from evidence.summary import summarize
from evidence.tampering.taped import Files, Json, Taped, case_path, read_taped, write_taped
from oracle.block import judge
from wire.ledger import read_ledger, totals

TapeEdit = Callable[[list[Taped]], None]
CASE_IDS = {case.case_id: case for case in all_cases()}


def read_records(files: Files) -> list[Json]:
    return [json.loads(line) for line in files[CASES].splitlines()]


def write_records(files: Files, records: Iterable[Json]) -> None:
    files[CASES] = b"".join(json_line(record) for record in records)


def json_line(value: Json) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii") + b"\n"


def recount(files: Files, case_id: str) -> None:
    """The record of a case from its files: digests, sizes, accounting, errors."""
    records = read_records(files)
    for record in records:
        if record["case"] == case_id:
            record |= _counted(files, case_id)
    write_records(files, records)


def _counted(files: Files, case_id: str) -> Json:
    ledger, tape = (files[case_path(case_id, name)] for name in (LEDGER, TAPE))
    entries = read_ledger(ledger)
    with_header = [entry for entry in entries if entry.flags is not None]
    counted: Json = {
        **totals(entries)._asdict(),
        "frames_received": sum(entry.direction == "receive" for entry in with_header),
        "frames_sent": sum(entry.direction == "send" for entry in with_header),
        "ledger_sha256": sha256_hex(ledger),
        "tape_sha256": sha256_hex(tape),
    }
    output, case = files.get(case_path(case_id, OUTPUT)), CASE_IDS[case_id]
    if output is not None and case.is_clean:
        counted |= {"output_bytes": len(output), "output_sha256": sha256_hex(output)}
        if len(output) == 64 * case.batch * case.sequence:
            judged = judge(output, case.seed, case.batch, case.sequence)
            counted["max_abs_error"] = scientific(judged.max_abs_error)
            counted["relative_l2_error"] = scientific(judged.relative_l2_error)
    return counted


def resum(files: Files) -> None:
    """Summary, report and figure from the records and files."""
    records = read_records(files)
    entries = sum(data.count(b"\n") for path, data in files.items() if path.endswith(LEDGER))
    tape_bytes = sum(len(data) for path, data in files.items() if path.endswith(TAPE))
    files[SUMMARY] = json_line(dict(summarize(records, entries, tape_bytes)))
    redraw(files)


def redraw(files: Files) -> None:
    """Report and figure from the summary and the records."""
    rewrite_report(files)
    files[FIGURE] = figure(read_records(files)).encode("utf-8")


def rewrite_report(files: Files) -> None:
    """The report from the summary and the records."""
    records = read_records(files)
    files[REPORT] = report(json.loads(files[SUMMARY]), records).encode("utf-8")


def rehash(files: Files) -> None:
    """The manifest's digests."""
    manifest = json.loads(files[MANIFEST])
    manifest["files"] = {
        path: {"bytes": len(data), "sha256": sha256_hex(data)}
        for path, data in files.items()
        if path != MANIFEST
    }
    files[MANIFEST] = json_line(manifest)


def edit_tape(files: Files, case_id: str, edit: TapeEdit) -> None:
    """Alter frames (and with them the ledger)."""
    tape = read_taped(files, case_id)
    edit(tape)
    write_taped(files, case_id, tape)
    reseal_case(files, case_id)


def reseal_case(files: Files, case_id: str) -> None:
    """Everything above the files of one case."""
    recount(files, case_id)
    resum(files)
    rehash(files)


def edit_record(files: Files, case_id: str, **changes: object) -> None:
    """Alter a case's line of cases.jsonl."""
    records = read_records(files)
    for record in records:
        if record["case"] == case_id:
            record |= changes
    write_records(files, records)
    resum(files)
    rehash(files)


def edit_json(files: Files, path: str, edit: Callable[[Json], None]) -> None:
    """Alter a JSON document; only the manifest is above it here."""
    value = json.loads(files[path])
    edit(value)
    files[path] = json_line(value)
    if path != MANIFEST:
        rehash(files)


def replace_text(files: Files, path: str, old: str, new: str) -> None:
    """Alter a text file once; KeyError when `old` does not stand in it."""
    if old.encode() not in files[path]:
        raise KeyError(f"{old!r} is not in {path}")
    files[path] = files[path].replace(old.encode(), new.encode(), 1)
    rehash(files)
