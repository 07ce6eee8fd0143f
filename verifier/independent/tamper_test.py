"""One thing altered, all digests made to agree again: the named check must still fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import frames
import pytest
import sample_edits
import sample_package as sample
import verify
from frames import Record
from sample_package import CLEAN, FAULT, SILENT, WIDE, Files

MATRIX = sample.small_matrix()
Edit = Callable[[Files], None]


@lru_cache(maxsize=1)
def valid() -> Files:
    return sample.build(MATRIX)


def codes(files: Files, root: Path, disabled: frozenset[str] = frozenset()) -> set[str]:
    verdict = verify.verify(sample.write(files, root), matrix=MATRIX, disabled=disabled)
    return {finding.code for finding in verdict.findings}


def tape_edit(case: str, edit: Callable[[Files, list[Record]], None]) -> Edit:
    return lambda files: sample_edits.edit_tape(files, case, lambda records: edit(files, records))


def nudge(case: str, kind: str, which: int = 0) -> Edit:
    """Moves the first float of a frame of a kind to its neighbour."""

    def edit(files: Files, records: list[Record]) -> None:
        at = sample_edits.indices(files, case, kind)[which]
        changed = sample_edits.nudged(sample_edits.payload(records[at]))
        records[at] = sample_edits.with_payload(records[at], changed)

    return tape_edit(case, edit)


def swap_ranks(files: Files, records: list[Record]) -> None:
    """The partials of ranks 0 and 1 change places, frames and all."""
    first, _, second, _ = sample_edits.indices(files, WIDE, "PARTIAL")[:4]
    del files
    records[first : first + 2], records[second : second + 2] = (
        records[second : second + 2],
        records[first : first + 2],
    )


def swap_payloads(files: Files, records: list[Record]) -> None:
    first, second = sample_edits.indices(files, WIDE, "PARTIAL")[1:3]
    left, right = sample_edits.payload(records[first]), sample_edits.payload(records[second])
    records[first] = sample_edits.with_payload(records[first], right)
    records[second] = sample_edits.with_payload(records[second], left)


def drop_fence(files: Files, records: list[Record]) -> None:
    del records[sample_edits.indices(files, CLEAN, "FENCE")[1]]


def other_name(files: Files, records: list[Record]) -> None:
    at = sample_edits.indices(files, CLEAN, "RESULT")[0]
    records[at] = sample_edits.with_metadata(records[at], step=1)


def zero_weight(files: Files, records: list[Record]) -> None:
    """`wq` of every rank as zeros: a whole run could be made from them, but not this seed's."""
    for at in sample_edits.indices(files, CLEAN, "WEIGHT")[::7]:
        zeros = bytes(len(sample_edits.payload(records[at])))
        records[at] = sample_edits.with_payload(records[at], zeros)


def mended(_: Files, records: list[Record]) -> None:
    """The flipped bit is flipped back: the fault is no longer in the tape."""
    last = records[-1]
    records[-1] = Record(last.direction, last.rank, last.data[:-1] + bytes([last.data[-1] ^ 1]))


def other_output(files: Files) -> None:
    path = f"cases/{CLEAN}/output.f32"
    files[path] = sample_edits.nudged(files[path])


def nan_output(files: Files) -> None:
    path = f"cases/{CLEAN}/output.f32"
    files[path] = b"\0\0\xc0\x7f" + files[path][4:]


def cut_tape(files: Files) -> None:
    path = f"cases/{CLEAN}/tape.bin"
    files[path] = files[path][:-1]


def extra_bytes(files: Files) -> None:
    """A record that holds a frame and one byte more."""
    records = frames.read_tape(files[f"cases/{CLEAN}/tape.bin"])
    last = records[-1]
    records[-1] = Record(last.direction, last.rank, last.data + b"\0")
    files[f"cases/{CLEAN}/tape.bin"] = sample.tape(records)


def ledger_line(**changed: object) -> Edit:
    def edit(files: Files) -> None:
        path = f"cases/{CLEAN}/ledger.jsonl"
        entries = sample.parsed(files[path])
        entries[9] |= changed
        files[path] = sample.lines(entries)

    return edit


def drop_ledger_line(files: Files) -> None:
    path = f"cases/{CLEAN}/ledger.jsonl"
    files[path] = sample.lines(sample.parsed(files[path])[:-1])


def add_output_to_fault(files: Files) -> None:
    files[f"cases/{FAULT}/output.f32"] = files[f"cases/{WIDE}/output.f32"]


def record(case: str, **changed: object) -> Edit:
    return lambda files: sample_edits.edit_record(files, case, **changed)


def json_edit(path: str, *keys: str, value: object) -> Edit:
    def change(made: sample.Json) -> None:
        for key in keys[:-1]:
            made = made[key]
        made[keys[-1]] = value

    return lambda files: sample_edits.edit_json(files, path, change)


def replaced(path: str, old: str, new: str) -> Edit:
    def edit(files: Files) -> None:
        assert old.encode() in files[path]
        files[path] = files[path].replace(old.encode(), new.encode(), 1)

    return edit


def without(path: str) -> Edit:
    def edit(files: Files) -> None:
        del files[path]

    return edit


def reorder(files: Files) -> None:
    files["cases.jsonl"] = sample.lines(reversed(sample.parsed(files["cases.jsonl"])))


def drop_case(files: Files) -> None:
    records = [each for each in sample.parsed(files["cases.jsonl"]) if each["case"] != CLEAN]
    files["cases.jsonl"] = sample.lines(records)


def double_case(files: Files) -> None:
    records = sample.parsed(files["cases.jsonl"])
    files["cases.jsonl"] = sample.lines([records[0], *records])


def drop_source(made: sample.Json) -> None:
    del made["source"]["files"]["wire/frame.py"]


ZEROS = "0" * 64
FIRST_POINT = '<circle class="case"'
POINT_STYLE = "<style>.case{display:none}</style>"
IMPORT = '<style>@IMPORT "http://example.org/a.css";</style>'
HTML = '<img xmlns="http://www.w3.org/1999/xhtml" src="http://example.org/a.png"/>'
TAMPERS: dict[str, tuple[str, Edit]] = {
    "an extra file": ("package.files", lambda files: files.update({"notes.txt": b"x"})),
    "a missing file": ("package.files", without("figure.svg")),
    "an extra key": ("package.schema", json_edit("manifest.json", "note", value="x")),
    "a bool for an integer": ("package.schema", record(CLEAN, epoch=True)),
    "another spelling": ("package.schema", replaced("summary.json", ":", ": ")),
    "an extra key of a ledger": ("package.schema", ledger_line(note=1)),
    "an extra key of the summary": ("package.schema", json_edit("summary.json", "x", value=1)),
    "a source digest": (
        "package.source",
        json_edit("manifest.json", "source", "digest", value=ZEROS),
    ),
    "a source left out": (
        "package.source",
        lambda files: sample_edits.edit_json(files, "manifest.json", drop_source),
    ),
    "a program digest": (
        "package.program",
        json_edit("manifest.json", "program_digests", "2", value=ZEROS),
    ),
    "a case left out": ("matrix.coverage", drop_case),
    "a case twice": ("matrix.coverage", double_case),
    "cases out of order": ("matrix.coverage", reorder),
    "a parameter not as in the name": ("matrix.coverage", record(CLEAN, seed=2)),
    "a fault of another rank": (
        "matrix.coverage",
        record(FAULT, fault={"kind": "checksum_corruption", "phase": "mlp", "rank": 2}),
    ),
    "a run identity": ("case.run_identity", record(CLEAN, run_identity=ZEROS)),
    "a float of an output": ("case.output", other_output),
    "a value that is not finite": ("case.output", nan_output),
    "an output left out": ("case.output", without(f"cases/{CLEAN}/output.f32")),
    "a float of one result": ("case.output", nudge(CLEAN, "RESULT", 1)),
    "a recorded error": ("case.error", record(CLEAN, max_abs_error="1.000e-09")),
    "a relative error": ("case.error", record(CLEAN, relative_l2_error="1.000e-09")),
    "a cut tape": ("case.tape", cut_tape),
    "a byte after a frame": ("case.tape", extra_bytes),
    "a ledger line left out": ("case.tape", drop_ledger_line),
    "a phase in a ledger": ("case.ledger", ledger_line(phase="mlp")),
    "a digest in a ledger": ("case.ledger", ledger_line(payload_sha256=ZEROS)),
    "a dropped frame": ("case.session", tape_edit(CLEAN, drop_fence)),
    "a swapped pair of ranks": ("case.session", tape_edit(WIDE, swap_ranks)),
    "a step in metadata": ("case.metadata", tape_edit(CLEAN, other_name)),
    "a weight of zeros": ("case.tensors", tape_edit(CLEAN, zero_weight)),
    "a float of an input": ("case.tensors", nudge(CLEAN, "INPUT", 1)),
    "a float of a total": ("case.reduction", nudge(CLEAN, "REDUCTION", 2)),
    "swapped partials": ("case.reduction", tape_edit(WIDE, swap_payloads)),
    "a float of a partial": ("case.arithmetic", nudge(CLEAN, "PARTIAL")),
    "a float of a result": ("case.arithmetic", nudge(WIDE, "RESULT", 3)),
    "a frame count": ("case.accounting", record(CLEAN, frames_sent=25)),
    "payload bytes": ("case.accounting", record(CLEAN, payload_bytes=1)),
    "an outcome": ("case.outcome", record(CLEAN, outcome="contract")),
    "an outcome of a fault": ("case.outcome", record(FAULT, outcome="ok")),
    "the rank of an error": (
        "case.outcome",
        record(FAULT, error={"code": "protocol.checksum", "phase": "mlp", "rank": 2}),
    ),
    "a mended fault": ("case.outcome", tape_edit(FAULT, mended)),
    "a frame after a deadline": (
        "case.outcome",
        tape_edit(SILENT, lambda _, records: records.append(records[0])),
    ),
    "an output of a fault": ("case.outcome", add_output_to_fault),
    "a summary number": ("summary.value", json_edit("summary.json", "clean", "frames", value=1)),
    "a count of outcomes": ("summary.value", json_edit("summary.json", "outcomes", "ok", value=9)),
    "a pairwise output": (
        "invariance.groups",
        lambda files: files.update({"cases/clean-r1-b1-t2-s1-pairwise/output.f32": b"\0" * 128}),
    ),
    "a number of the report": (
        "report.value",
        replaced("report.md", "| cases.total | ", "| cases.total | 1"),
    ),
    "a second table": ("report.value", replaced("report.md", "## End", "text\n\n## End")),
    "a section twice": ("report.value", replaced("report.md", "## End", "## Cases")),
    "a point of the figure": ("figure.value", replaced("figure.svg", 'cy="', 'cy="1')),
    "a bar of the figure": ("figure.value", replaced("figure.svg", 'height="5', 'height="15')),
    "a second point": (
        "figure.value",
        replaced("figure.svg", FIRST_POINT, f'{FIRST_POINT} data-case="x"/>{FIRST_POINT}'),
    ),
    "a moved group": ("figure.value", replaced("figure.svg", ' width="', ' transform="" width="')),
    "a script": ("figure.value", replaced("figure.svg", "<title>", "<script/><title>")),
    "a hidden point": ("figure.value", replaced("figure.svg", ' cx="', ' display="none" cx="')),
    "a style of points": (
        "figure.value",
        replaced("figure.svg", "<circle", f"{POINT_STYLE}<circle"),
    ),
    "a style from elsewhere": (
        "figure.value",
        replaced("figure.svg", "<circle", f"{IMPORT}<circle"),
    ),
    "a picture of another kind": (
        "figure.value",
        replaced("figure.svg", "<circle", f"{HTML}<circle"),
    ),
}

# These alter what hashing the records again would repair or could not read.
LATE_TAMPERS: dict[str, tuple[str, Edit]] = {
    "a float": ("package.schema", replaced("cases.jsonl", '"batch":1', '"batch":1.0')),
    "a key twice": ("package.schema", replaced("cases.jsonl", '"batch":1', '"batch":1,"batch":1')),
    "a line cut": ("package.schema", replaced("cases.jsonl", "}\n", "\n")),
    "a tape's digest": ("case.tape", record(CLEAN, tape_sha256=ZEROS)),
    "a ledger's digest": ("case.ledger", record(CLEAN, ledger_sha256=ZEROS)),
    "an output's digest": ("case.output", record(CLEAN, output_sha256=ZEROS)),
    "an output's size": ("case.output", record(CLEAN, output_bytes=64)),
}


# The first of every check.
ALWAYS = {code: name for name, (code, _) in reversed((TAMPERS | LATE_TAMPERS).items())}.values()


def test_the_sample_is_valid(tmp_path: Path) -> None:
    assert codes(dict(valid()), tmp_path) == set()


@pytest.mark.parametrize(
    "name",
    [
        name if name in ALWAYS else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in [*TAMPERS, *LATE_TAMPERS]
    ],
)
def test_the_named_check_fails_and_is_needed(name: str, tmp_path: Path) -> None:
    code, edit = (TAMPERS | LATE_TAMPERS)[name]
    files = dict(valid())
    edit(files)
    if name in TAMPERS:
        sample.rehash_records(files)
    sample.rehash_manifest(files)
    found = codes(files, tmp_path)
    assert code in found
    assert "package.hash" not in found
    assert code not in codes(files, tmp_path, disabled=frozenset({code}))


def test_a_file_that_differs_from_the_manifest(tmp_path: Path) -> None:
    files = dict(valid())
    files["report.md"] += b"\n"
    assert codes(files, tmp_path) == {"package.hash"}


def test_every_check_has_a_tamper() -> None:
    covered = {code for code, _ in TAMPERS.values()} | {"package.hash"}
    assert covered == set(verify.CODES)
