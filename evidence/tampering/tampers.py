"""One thing altered, everything above it made to agree: what a verifier must still find.

Each tamper names the code that must be among the findings. `alone`: the package verifier reports
nothing but that code, so that without its check the tamper would pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from evidence.package import FIGURE, LEDGER, MANIFEST, OUTPUT, REPORT, SUMMARY, TAPE
from evidence.record import sha256_hex
from evidence.tampering import frame_edits as frames
from evidence.tampering import reseal
from evidence.tampering.taped import Files, Json, case_path, nudged, read_taped, write_taped

CLEAN: Final = "clean-r2-b1-t2-s1-rank"
WIDE: Final = "clean-r4-b2-t4-s3-rank"
SINGLE: Final = "clean-r1-b1-t2-s1-pairwise"
FLIPPED: Final = "fault-checksum_corruption-mlp-s2"
CUT: Final = "fault-truncated_frame-attention-s1"
STALE: Final = "fault-stale_epoch-result-s3"
SILENT: Final = "fault-delay-attention-s4"
ZEROS: Final = "0" * 64

Edit = Callable[[Files], None]


@dataclass(frozen=True)
class Tamper:
    """case_ids: the cases whose files or record are altered; the other cases stay as they were."""

    code: str
    edit: Edit
    alone: bool = False
    case_ids: tuple[str, ...] = ()


def _tape(code: str, case_id: str, edit: reseal.TapeEdit, *, alone: bool = False) -> Tamper:
    return Tamper(code, lambda files: reseal.edit_tape(files, case_id, edit), alone, (case_id,))


def _record(code: str, case_id: str, *, alone: bool = True, **changes: object) -> Tamper:
    return Tamper(
        code, lambda files: reseal.edit_record(files, case_id, **changes), alone, (case_id,)
    )


def _json(code: str, path: str, *keys: str, value: object, alone: bool = True) -> Tamper:
    def change(document: Json) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return Tamper(code, lambda files: reseal.edit_json(files, path, change), alone)


def _text(code: str, path: str, old: str, new: str, *, alone: bool = True) -> Tamper:
    return Tamper(code, lambda files: reseal.replace_text(files, path, old, new), alone)


def _files(code: str, edit: Edit, *case_ids: str, alone: bool = False) -> Tamper:
    """An edit of the files that leaves the manifest to be made again."""

    def tamper(files: Files) -> None:
        edit(files)
        reseal.rehash(files)

    return Tamper(code, tamper, alone, case_ids)


def _case(code: str, case_id: str, edit: Edit, *, alone: bool = False) -> Tamper:
    """An edit of one case's files; its record and all above are made again."""

    def tamper(files: Files) -> None:
        edit(files)
        reseal.reseal_case(files, case_id)

    return Tamper(code, tamper, alone, (case_id,))


def _nudge_output(case_id: str) -> Edit:
    def edit(files: Files) -> None:
        path = case_path(case_id, OUTPUT)
        files[path] = nudged(files[path], 3)

    return edit


def _nan_output(files: Files) -> None:
    path = case_path(CLEAN, OUTPUT)
    files[path] = b"\0\0\xc0\x7f" + files[path][4:]


def _ledger_value(case_id: str, index: int, **changes: object) -> Edit:
    def edit(files: Files) -> None:
        tape = read_taped(files, case_id)
        for key, value in changes.items():
            object.__setattr__(tape[index].entry, key, value)
        write_taped(files, case_id, tape)

    return edit


def _ledger_key(files: Files) -> None:
    path = case_path(CLEAN, LEDGER)
    files[path] = files[path].replace(b'{"checksum"', b'{"a":1,"checksum"', 1)
    _hash_ledger(files, CLEAN)


def _drop_ledger_line(files: Files) -> None:
    path = case_path(CLEAN, LEDGER)
    files[path] = files[path][: files[path][:-1].rindex(b"\n") + 1]
    _hash_ledger(files, CLEAN)


def _hash_ledger(files: Files, case_id: str) -> None:
    digest = sha256_hex(files[case_path(case_id, LEDGER)])
    reseal.edit_record(files, case_id, ledger_sha256=digest)
    reseal.resum(files)


def _cut_tape(files: Files) -> None:
    path = case_path(CLEAN, TAPE)
    files[path] = files[path][:-1]
    digest = sha256_hex(files[path])
    reseal.edit_record(files, CLEAN, tape_sha256=digest)


def _all_results(case_id: str) -> Edit:
    """Another output, and the same in every rank's RESULT."""

    def edit(files: Files) -> None:
        path = case_path(case_id, OUTPUT)
        files[path] = nudged(files[path], 5)
        tape = read_taped(files, case_id)
        frames.every_result(files[path])(tape)
        write_taped(files, case_id, tape)

    return edit


def _output_of_fault(files: Files) -> None:
    files[case_path(FLIPPED, OUTPUT)] = files[case_path(WIDE, OUTPUT)]


def _records(edit: Callable[[list[Json]], None]) -> Edit:
    """Alter the list of records; what is drawn from them keeps only what the report shows."""

    def tamper(files: Files) -> None:
        records = reseal.read_records(files)
        edit(records)
        reseal.write_records(files, records)
        reseal.rewrite_report(files)

    return tamper


def _drop_record(records: list[Json]) -> None:
    records[:] = [record for record in records if record["case"] != CLEAN]


def _double_record(records: list[Json]) -> None:
    records.insert(0, records[0])


def _other_seed(records: list[Json]) -> None:
    for record in records:
        if record["case"] == CLEAN:
            record["seed"] = 2


def _reverse(records: list[Json]) -> None:
    records.reverse()


def _drop_source(files: Files) -> None:
    def change(manifest: Json) -> None:
        del manifest["source"]["files"][min(manifest["source"]["files"])]

    reseal.edit_json(files, MANIFEST, change)


def _summary_number(files: Files) -> None:
    """A number of the summary, and of the report that repeats it."""

    def change(summary: Json) -> None:
        summary["clean"]["payload_bytes"] += 4

    reseal.edit_json(files, SUMMARY, change)
    reseal.redraw(files)
    reseal.rehash(files)


def _drop(path: str) -> Edit:
    def edit(files: Files) -> None:
        del files[path]

    return edit


def _add(path: str) -> Edit:
    return lambda files: files.update({path: b"x"})


def _unlisted(files: Files) -> None:
    files["cases/notes.txt"] = b"x"


def _turn_figure(files: Files) -> None:
    head, rest = files[FIGURE].split(b"</style>\n")
    rest = rest.replace(b"</svg>", b"</g></svg>")
    files[FIGURE] = head + b'</style>\n<g transform="scale(2)">' + rest


def _changed_prose(files: Files) -> None:
    """Prose of the report is free; its digest is not."""
    files[REPORT] = files[REPORT].replace(b"decoder", b"Decoder", 1)


_ERROR: Final = {"code": "protocol.checksum", "phase": "mlp", "rank": 1}
_FAULT: Final = {"kind": "checksum_corruption", "phase": "mlp", "rank": 1}

TAMPERS: Final[dict[str, Tamper]] = {
    "a file too many": _files("package.files", _add("notes.txt")),
    "a file too many, unlisted": Tamper("package.files", _unlisted, True),
    "a missing file": _files("package.files", _drop(FIGURE)),
    "a missing output": _files("package.files", _drop(case_path(CLEAN, OUTPUT)), CLEAN),
    "a key of the manifest": _json("package.schema", MANIFEST, "note", value="x"),
    "a boolean for an integer": _record("package.schema", CLEAN, epoch=True, alone=False),
    "a number for a string": _record("package.schema", CLEAN, max_abs_error=1, alone=False),
    "a key of a ledger": _files("package.schema", _ledger_key, CLEAN),
    "a key of the summary": _json("package.schema", SUMMARY, "note", value=1, alone=False),
    "another spelling": _text("package.schema", SUMMARY, ":", ": ", alone=False),
    "a byte without its digest": Tamper("package.hash", _changed_prose, True),
    "a digest of the manifest": _json(
        "package.hash", MANIFEST, "files", FIGURE, "sha256", value=ZEROS
    ),
    "a size of the manifest": _json("package.hash", MANIFEST, "files", FIGURE, "bytes", value=1),
    "the source's digest": _json("package.source", MANIFEST, "source", "digest", value=ZEROS),
    "a source left out": Tamper("package.source", _drop_source, True),
    "a program's digest": _json("package.program", MANIFEST, "program_digests", "2", value=ZEROS),
    "a record left out": _files("matrix.coverage", _records(_drop_record), CLEAN),
    "a record twice": _files("matrix.coverage", _records(_double_record)),
    "records in another order": _files("matrix.coverage", _records(_reverse), alone=True),
    "a parameter": _files("matrix.coverage", _records(_other_seed), CLEAN),
    "the fault of a record": _record("matrix.coverage", FLIPPED, fault=_FAULT | {"rank": 2}),
    "a run's identity": _record("case.run_identity", CLEAN, run_identity=ZEROS),
    "a float of an output": _case("case.output", CLEAN, _nudge_output(CLEAN), alone=True),
    "a value that is not finite": _case("case.output", CLEAN, _nan_output),
    "an output's digest": _record("case.output", CLEAN, output_sha256=ZEROS),
    "a float of one rank's result": _tape("case.output", CLEAN, frames.nudge_result),
    "an error": _record("case.error", CLEAN, max_abs_error="1.000e-09"),
    "a relative error": _record("case.error", CLEAN, relative_l2_error="1.000e-09"),
    "a cut tape": _files("case.tape", _cut_tape, CLEAN),
    "a tape's digest": _record("case.tape", CLEAN, tape_sha256=ZEROS),
    "a byte after a frame": _tape("case.tape", CLEAN, frames.trailing_byte),
    "a ledger line left out": _files("case.tape", _drop_ledger_line, CLEAN),
    "a phase of a ledger": _case(
        "case.ledger", CLEAN, _ledger_value(CLEAN, 9, phase="mlp"), alone=True
    ),
    "a digest of a ledger": _case(
        "case.ledger", CLEAN, _ledger_value(CLEAN, 4, payload_sha256=ZEROS), alone=True
    ),
    "a ledger's digest": _record("case.ledger", CLEAN, ledger_sha256=ZEROS),
    "two greetings swapped": _tape("case.session", WIDE, frames.swap_greetings, alone=True),
    "a pair of ranks swapped": _tape("case.session", WIDE, frames.swap_ranks),
    "a dropped frame": _tape("case.session", CLEAN, frames.drop_fence),
    "a sequence": _tape("case.session", CLEAN, frames.skip_sequence),
    "another epoch throughout": _tape("case.session", CLEAN, frames.next_epoch, alone=True),
    "a step of a result": _tape("case.metadata", CLEAN, frames.other_step, alone=True),
    "a program's name": _tape("case.metadata", CLEAN, frames.other_program),
    "a weight": _tape("case.tensors", CLEAN, frames.zero_weight, alone=True),
    "a float of an input": _tape("case.tensors", CLEAN, frames.nudge_input, alone=True),
    "a float of a total": _tape("case.reduction", WIDE, frames.nudge_total, alone=True),
    "the sum in the other order": _tape("case.reduction", WIDE, frames.other_order),
    "a partial and its total": _tape("case.arithmetic", CLEAN, frames.consistent_partial),
    "all results and the output": _case("case.arithmetic", CLEAN, _all_results(CLEAN), alone=True),
    "a count of frames": _record("case.accounting", CLEAN, frames_sent=25),
    "payload bytes": _record("case.accounting", FLIPPED, payload_bytes=1),
    "an outcome": _record("case.outcome", FLIPPED, outcome="contract"),
    "the code of an error": _record(
        "case.outcome", FLIPPED, error=_ERROR | {"code": "protocol.magic"}
    ),
    "the rank of an error": _record("case.outcome", FLIPPED, error=_ERROR | {"rank": 2}),
    "a mended fault": _tape("case.outcome", FLIPPED, frames.mend_checksum),
    "another bit": _tape("case.outcome", FLIPPED, frames.flip_first_bit, alone=True),
    "a frame that is cut elsewhere": _tape("case.outcome", CUT, frames.cut_earlier, alone=True),
    "a fresh epoch": _tape("case.outcome", STALE, frames.older_epoch, alone=True),
    "a frame before the deadline": _tape("case.outcome", SILENT, frames.late_byte),
    "an output of a failed run": _case("case.outcome", FLIPPED, _output_of_fault),
    "a number of the summary": Tamper("summary.value", _summary_number, True),
    "a count of outcomes": _json("summary.value", SUMMARY, "outcomes", "ok", value=9, alone=False),
    "a pairwise output": _case("invariance.groups", SINGLE, _all_results(SINGLE)),
    "a number of the report": _text(
        "report.value", REPORT, "| cases.total | ", "| cases.total | 1"
    ),
    "a case of the report": _text("report.value", REPORT, f"| {CLEAN} | ok", f"| {CLEAN} | ko"),
    "a table too many": _text("report.value", REPORT, "## Cases\n", "| a |\n\n## Cases\n"),
    "a section twice": _text("report.value", REPORT, "## Isolation", "## Cases"),
    "a point of the figure": _text("figure.value", FIGURE, 'cy="', 'cy="1'),
    "a bar of the figure": _text("figure.value", FIGURE, 'height="', 'height="1', alone=False),
    "a cell of the figure": _text(
        "figure.value", FIGURE, 'data-outcome="contract"', 'data-outcome="protocol"'
    ),
    "a point too many": _text(
        "figure.value", FIGURE, '<circle class="case"', '<circle class="case"/><circle class="case"'
    ),
    "a turned cell": _text("figure.value", FIGURE, 'class="fault"', 'class="fault" transform=""'),
    "a turned figure": _files("figure.value", _turn_figure, alone=True),
    "a script": _text("figure.value", FIGURE, "<style>", "<script/><style>"),
    "a hidden cell": _text("figure.value", FIGURE, 'class="fault"', 'class="fault" display="none"'),
    "a style of bars": _text("figure.value", FIGURE, "<style>", "<style>.bytes{display:none}"),
    "a style from elsewhere": _text("figure.value", FIGURE, "<style>", '<style>@IMPORT "a.css";'),
    "a turned axis": _text("figure.value", FIGURE, 'viewBox="0 0', 'viewBox="9 0'),
}
