"""The evidence package on disk: from case runs to files, and back (docs/spec/evidence.md E1 to E4).

Writing is a pure function from the runs to (path -> bytes); only `write_package` touches the disk.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from errors import ConfigError
from evidence.figure import figure
from evidence.matrix import RANKS
from evidence.record import CaseRun, case_record, sha256_hex
from evidence.report import report
from evidence.summary import summarize
from program.block import block_spec
from program.digest import program_digest
from wire.canonical import JsonObject, encode_canonical

SCHEMA: Final = "rankproof.evidence/1"
MANIFEST, CASES, SUMMARY = "manifest.json", "cases.jsonl", "summary.json"
REPORT, FIGURE = "report.md", "figure.svg"
LEDGER, TAPE, OUTPUT = "ledger.jsonl", "tape.bin", "output.f32"


def case_files(run: CaseRun) -> dict[str, bytes]:
    """The files of one case, by path in the package."""
    folder = f"cases/{run.case.case_id}"
    files = {f"{folder}/{LEDGER}": run.ledger, f"{folder}/{TAPE}": run.tape}
    if run.output is not None:
        files[f"{folder}/{OUTPUT}"] = run.output
    return files


def source_object(source_files: Mapping[str, str]) -> JsonObject:
    """The `source` member of the manifest: file digests, and one digest over them."""
    lines = "".join(f"{source_files[path]}  {path}\n" for path in sorted(source_files))
    digest = hashlib.sha256(lines.encode("ascii")).hexdigest()
    return {"digest": digest, "files": dict(source_files)}


def _json_file(value: JsonObject) -> bytes:
    # Not the wire's encoder: a manifest is larger than a frame's metadata may be.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii") + b"\n"


def package_files(runs: Iterable[CaseRun], source_files: Mapping[str, str]) -> dict[str, bytes]:
    """Every file of a whole package. The runs must be those of the whole matrix."""
    files: dict[str, bytes] = {}
    records: list[JsonObject] = []
    entries = tape_bytes = 0
    for run in sorted(runs, key=lambda run: run.case.case_id):
        files |= case_files(run)
        records.append(case_record(run))
        entries += len(run.entries)
        tape_bytes += len(run.tape)
    summary = summarize(records, entries, tape_bytes)
    files[CASES] = b"".join(encode_canonical(record) + b"\n" for record in records)
    files[SUMMARY] = _json_file(summary)
    files[REPORT] = report(summary, records).encode("utf-8")
    files[FIGURE] = figure(records).encode("utf-8")
    files[MANIFEST] = manifest_file(files, source_files)
    return files


def manifest_file(files: Mapping[str, bytes], source_files: Mapping[str, str]) -> bytes:
    """manifest.json over all other files of the package."""
    return _json_file(
        {
            "case_count": 288,
            "files": {
                path: {"bytes": len(data), "sha256": sha256_hex(data)}
                for path, data in files.items()
                if path != MANIFEST
            },
            "program_digests": {str(ranks): program_digest(block_spec(ranks)) for ranks in RANKS},
            "schema": SCHEMA,
            "source": source_object(source_files),
        }
    )


def read_package(directory: Path) -> dict[str, bytes]:
    """Every file below the folder of a package of our own. Raises ConfigError when there is none.

    Links are followed: a build's runfiles are links. A verifier must never do so.
    """
    files = {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    if MANIFEST not in files:
        raise ConfigError.single("package", directory, "must be the folder of an evidence package")
    return files


def write_package(directory: Path, files: Mapping[str, bytes], *, replace: bool = False) -> None:
    """Write all files into an empty or new directory. Raises ConfigError when it is neither.

    replace: a package that stands there is replaced, once the new one is complete.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not any(directory.iterdir()):
            _write_files(directory, files)
        elif replace and (directory / MANIFEST).is_file():
            _replace(directory, files)
        else:
            rule = "must be a new or an empty folder, or with --replace that of a package"
            raise ConfigError.single("--out", directory, rule)
    except OSError as failure:
        raise ConfigError.single(
            "--out", directory, f"must be a folder that can be written: {failure.strerror}"
        ) from None


def _write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _replace(directory: Path, files: Mapping[str, bytes]) -> None:
    """Beside the old package first, so that an interruption leaves one of the two whole."""
    fresh, old = (directory.with_name(f"{directory.name}.{part}") for part in ("new", "old"))
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    _write_files(fresh, files)
    directory.rename(old)
    fresh.rename(directory)
    shutil.rmtree(old)
