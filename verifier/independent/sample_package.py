"""Writes small evidence packages for tests, as a table of paths and bytes that tests can alter."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import arithmetic
import block
import canonical
import case_checks
import figure
import frames
import ledger
import number_checks
import reference
import report
import script
import source
import summary
import tensors
from bundle import Bundle, Measured
from frames import RECORD, TAPE_MAGIC, Record
from matrix import EPOCH, FAULT_KINDS, Case, full_matrix
from package import Package
from run import Run

Files = dict[str, bytes]
Json = dict[str, Any]

CLEAN = "clean-r2-b1-t2-s1-rank"
WIDE = "clean-r4-b2-t4-s3-rank"
FAULT = "fault-checksum_corruption-mlp-s2"
SILENT = "fault-delay-attention-s4"
_CASES = {
    *(f"clean-r{ranks}-b1-t2-s1-pairwise" for ranks in (1, 2, 4)),
    CLEAN,
    WIDE,
    SILENT,
    "fault-cancellation_race-attention-s1",
    "fault-rank_exit-result-s3",
    *(f"fault-{kind}-mlp-s2" for kind in FAULT_KINDS),
}
SOURCES = {
    "evidence/runner.py": b"import wire.frame\nfrom worker import absent, main\n",
    "manifest/run_manifest.proto": b"",
    "wire/frame.py": b"FRAME = 1\n",
    "worker/main.py": b"from manifest import run_manifest_pb2\n",
}


def small_matrix() -> dict[str, Case]:
    """Enough of the matrix to have each world size, order and fault kind."""
    return {name: case for name, case in full_matrix().items() if name in _CASES}


def build(matrix: dict[str, Case]) -> Files:
    """A valid package of these cases."""
    files: Files = {}
    bundle = Bundle(Package(Path()), matrix)
    for case in matrix.values():
        bundle.cases.append(_add_case(files, bundle, case))
    totals = summary.recompute(bundle)
    files["cases.jsonl"] = lines(bundle.cases)
    files["summary.json"] = lines([totals])
    files["report.md"] = _report(totals, bundle.cases)
    files["figure.svg"] = _figure(bundle)
    files["manifest.json"] = lines([_manifest(matrix)])
    rehash(files)
    return files


def lines(values: Iterable[Json]) -> bytes:
    """One canonical line for each value."""
    return b"".join(canonical.encode(value) + b"\n" for value in values)


def parsed(data: bytes) -> list[Json]:
    return [canonical.decode_object(line) for line in data.splitlines()]


def write(files: Files, root: Path) -> Path:
    """Writes the files below a directory and returns it."""
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def rehash(files: Files) -> None:
    """Makes all digests agree with the files again: those of the cases, then the manifest."""
    rehash_records(files)
    rehash_manifest(files)


def rehash_records(files: Files) -> None:
    """Makes the digests in `cases.jsonl` agree with the files of the cases."""
    records = parsed(files["cases.jsonl"])
    for record in records:
        base = f"cases/{record['case']}/"
        for key, name in (("tape_sha256", "tape.bin"), ("ledger_sha256", "ledger.jsonl")):
            if base + name in files:
                record[key] = sha256(files[base + name])
        output = files.get(base + "output.f32")
        if output is not None and record["output_sha256"] is not None:
            record |= {"output_sha256": sha256(output), "output_bytes": len(output)}
    files["cases.jsonl"] = lines(records)


def rehash_manifest(files: Files) -> None:
    """Makes the manifest agree with all other files."""
    (manifest,) = parsed(files["manifest.json"])
    manifest["files"] = {
        path: {"bytes": len(data), "sha256": sha256(data)}
        for path, data in files.items()
        if path != "manifest.json"
    }
    files["manifest.json"] = lines([manifest])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tape(records: Iterable[Record]) -> bytes:
    made = [TAPE_MAGIC]
    for record in records:
        direction = frames.DIRECTIONS.index(record.direction)
        made += [RECORD.pack(direction, record.rank, len(record.data)), record.data]
    return b"".join(made)


def _add_case(files: Files, bundle: Bundle, case: Case) -> Json:
    """Writes tape, ledger and output of a case; returns its record without the digests."""
    run = Run(case, None, script.expected_steps(case, EPOCH))
    exact = arithmetic.run(case.seed, case.ranks, case.batch, case.sequence, case.sum_order)
    records = _records(run, exact)
    turns = turns_of(case, records)
    base = f"cases/{case.name}/"
    files[base + "tape.bin"] = tape(records)
    files[base + "ledger.jsonl"] = ledger_of(turns)
    accounts = ledger.accounts(turns)
    clean = case.fault is None
    if clean:
        files[base + "output.f32"] = exact.result
    bundle.measured[case.name] = Measured(
        len(turns),
        len(files[base + "tape.bin"]),
        accounts.payload_bytes,
        exact.result if clean else None,
    )
    return {
        "case": case.name,
        "ranks": case.ranks,
        "batch": case.batch,
        "sequence": case.sequence,
        "seed": case.seed,
        "sum_order": case.sum_order,
        "epoch": EPOCH,
        "fault": None if case.fault is None else case.fault.record(),
        "outcome": case.outcome,
        "error": case.error(),
        "run_identity": case_checks.run_identity(run),
        "output_sha256": "" if clean else None,
        "output_bytes": 0 if clean else None,
        **_errors(case, exact.result),
        **vars(accounts),
        "ledger_sha256": "",
        "tape_sha256": "",
    }


def _records(run: Run, exact: arithmetic.Exact) -> list[Record]:
    case = run.case
    weights: dict[int, int] = {}
    made = []
    for step in run.steps:
        body = b""
        if step.kind == "WEIGHT":
            at = weights[step.rank] = weights.get(step.rank, -1) + 1
            body = tensors.local_weight(case.seed, case.ranks, step.rank, block.WEIGHTS[at].name)
        elif step.kind == "INPUT":
            body = tensors.operand(case.seed, case.tokens)
        elif step.kind == "PARTIAL":
            body = exact.partials[step.phase][step.rank]
        elif step.kind == "REDUCTION":
            total = arithmetic.reduce_partials(exact.partials[step.phase], case.sum_order)
            body = total or b""
        elif step.kind == "RESULT":
            body = exact.result
        data = frames.write_frame(step.kind, step.epoch, step.sequence, step.metadata, body)
        if case.fault is not None and step is run.steps[-1]:
            data = number_checks.faulty_bytes(run, step)
        made.append(Record(step.direction, step.rank, data))
    return made


def turns_of(case: Case, records: list[Record]) -> list[ledger.Turn]:
    """A tape's records, judged."""
    steps = script.clean_steps(case.ranks, case.batch, case.sequence, EPOCH)
    deadline = case.outcome == "deadline"
    return ledger.replay(records, script.connections(steps), block.PHASES, EPOCH, deadline)


def ledger_of(turns: list[ledger.Turn]) -> bytes:
    """The ledger that belongs to a tape."""
    return lines(ledger.entry(index, turn) for index, turn in enumerate(turns))


def _errors(case: Case, output: bytes) -> Json:
    if case.fault is not None:
        return {"max_abs_error": None, "relative_l2_error": None}
    wanted = reference.block(case.seed, case.batch, case.sequence)
    offsets = [got - want for got, want in zip(tensors.from_bytes(output), wanted, strict=True)]
    relative = math.sqrt(math.fsum(each * each for each in offsets)) / math.sqrt(
        math.fsum(each * each for each in wanted)
    )
    return {
        "max_abs_error": f"{max(map(abs, offsets)):.3e}",
        "relative_l2_error": f"{relative:.3e}",
    }


def _manifest(matrix: dict[str, Case]) -> Json:
    hashed = {path: sha256(data) for path, data in SOURCES.items()}
    return {
        "schema": "rankproof.evidence/1",
        "case_count": len(matrix),
        "files": {},
        "program_digests": {
            str(ranks): block.digest(ranks) for ranks in {case.ranks for case in matrix.values()}
        },
        "source": {"digest": source.source_digest(hashed), "files": hashed},
    }


def _report(totals: Json, records: list[Json]) -> bytes:
    numbers = [*report.NUMBERS_HEAD]
    numbers += [f"| {path} | {value} |" for path, value in summary.leaves(totals)]
    cases = report.case_rows(records)
    text = ["# Sample", "", "Prose.", "", "## Numbers", "", *numbers, "", "## Cases", ""]
    return "\n".join([*text, *cases, "", "## End", "", "More prose.", ""]).encode("utf-8")


def _figure(bundle: Bundle) -> bytes:
    measured: dict[tuple[int, int, int], int] = {}
    for case in bundle.matrix.values():
        if case.fault is None:
            key = (case.ranks, case.batch, case.sequence)
            measured[key] = bundle.measured[case.name].payload_bytes
    made = [
        '<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="960" height="900">',
        "<title>Sample</title>",
    ]
    for kind, tag in figure.TAGS.items():
        for attributes in figure.wanted(kind, bundle.by_name(), measured, measured):
            listed = " ".join(f'{key}="{value}"' for key, value in attributes.items())
            made.append(f'<{tag} class="{kind}" {listed}/>')
    return "\n".join([*made, "</svg>", ""]).encode("ascii")
