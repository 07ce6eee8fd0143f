"""The checks over the package as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from evidence.figure import figure
from evidence.import_closure import import_closure
from evidence.matrix import BATCHES, RANKS, SEEDS, SEQUENCES, Case, all_cases
from evidence.package import CASES, FIGURE, LEDGER, MANIFEST, OUTPUT, REPORT, SUMMARY, TAPE
from evidence.record import fault_object
from evidence.summary import summarize
from program.block import block_spec
from program.digest import program_digest
from verifier.package.case_run import case_path
from verifier.package.documents import Documents, Record
from verifier.package.figure_check import figure_problems
from verifier.package.files import PackageFiles, UnreadableError, path_problem, read_regular
from verifier.package.findings import Log, shown
from verifier.package.report_check import report_problems

# E4: where the sources of a run begin, and the one that is no module.
RUNNER: Final = "evidence/runner.py"
PROTO: Final = "manifest/run_manifest.proto"


@dataclass(frozen=True)
class Package:
    """source: root of the source tree to compare with, or None."""

    files: PackageFiles
    documents: Documents
    source: Path | None


PackageCheck = Callable[[Package, Log], None]


def expected_paths() -> set[str]:
    """Every path of a package (E2)."""
    paths = {MANIFEST, CASES, SUMMARY, REPORT, FIGURE}
    for case in all_cases():
        names = (LEDGER, TAPE, OUTPUT) if case.is_clean else (LEDGER, TAPE)
        paths.update(case_path(case.case_id, name) for name in names)
    return paths


def check_files(package: Package, log: Log) -> None:
    """`package.files`: exactly the files of E2, readable within E3, and all of them listed."""
    listing, wanted = package.files.listing, expected_paths()
    for problem in listing.problems:
        log.found(problem)
    folders = {path.rpartition("/")[0] for path in wanted} | {"cases"}
    for path in sorted((listing.sizes.keys() - wanted) | (listing.folders - folders)):
        log.found(f"{shown(path)} does not belong to a package")
    for path in sorted(wanted):
        try:
            package.files.digest(path)
        except UnreadableError as failure:
            log.found(str(failure))
    listed = package.documents.manifest.get("files")
    if listed is None:
        return
    for path in sorted(listed.keys() ^ (wanted - {MANIFEST})):
        verb, fault = "does not list" if path in wanted else "lists", path_problem(path)
        log.found(f"the manifest {verb} {shown(path)}" + (f", which {fault}" if fault else ""))


def check_schema(package: Package, log: Log) -> None:
    """`package.schema`: canonical JSON with the right keys and types."""
    for problem in package.documents.problems:
        log.found(problem)


def check_hash(package: Package, log: Log) -> None:
    """`package.hash`: size and digest of every listed file."""
    files = package.documents.manifest.get("files")
    if files is None:
        log.found("the manifest has no usable files")
        return
    for path, claimed in files.items():
        if not package.files.has(path):
            continue
        try:
            digest = package.files.digest(path)
        except UnreadableError as failure:
            log.found(str(failure))
            continue
        log.compare(f"{path}: bytes", claimed["bytes"], package.files.listing.sizes[path])
        log.compare(f"{path}: sha256", claimed["sha256"], digest)


def check_source(package: Package, log: Log) -> None:
    """`package.source`: E4's digest over the sources, and the sources where a tree is given."""
    source = package.documents.manifest.get("source")
    if source is None:
        log.found("the manifest has no usable source")
        return
    files: Mapping[str, str] = source["files"]
    if not files:
        log.found("no source is named")
    outside = {path: problem for path in files if (problem := path_problem(path))}
    for path, problem in outside.items():
        log.found(f"source {shown(path)} {problem}")
    if outside:
        return
    lines = "".join(f"{files[path]}  {path}\n" for path in sorted(files))
    log.compare("digest", source["digest"], hashlib.sha256(lines.encode("ascii")).hexdigest())
    if package.source is not None:
        _compare_sources(files, package.source, log)


_NOT_FOLLOWED: Final = (
    UnreadableError,
    OSError,
    RuntimeError,
    SyntaxError,
    ValueError,
    MemoryError,
)


def _compare_sources(files: Mapping[str, str], root: Path, log: Log) -> None:
    for path in sorted(files):
        try:
            # A source tree may be one of links, as builds make them.
            data = read_regular((root / path).resolve())
        except (UnreadableError, OSError, RuntimeError) as failure:
            log.found(f"source {path}: {failure}")
            continue
        log.compare(f"source {path}", files[path], hashlib.sha256(data).hexdigest())
    try:
        wanted = import_closure(RUNNER, partial(_source_text, root)).keys() | {PROTO}
    except _NOT_FOLLOWED as failure:
        log.found(f"the sources can't be followed: {failure}")
        return
    for path in sorted(wanted ^ files.keys()):
        verb = "is not listed" if path in wanted else "produces no run"
        log.found(f"source {shown(path)} {verb}")


def _source_text(root: Path, path: str) -> str | None:
    if not (root / path).is_file():
        return None
    return read_regular((root / path).resolve()).decode("utf-8")


def check_program(package: Package, log: Log) -> None:
    """`package.program`: the program's digest at each world size."""
    claimed = package.documents.manifest.get("program_digests")
    if claimed is None:
        log.found("the manifest has no usable program digests")
        return
    for ranks in RANKS:
        wanted = program_digest(block_spec(ranks))
        log.compare(f"digest for {ranks} ranks", claimed[str(ranks)], wanted)


def check_coverage(package: Package, log: Log) -> None:
    """`matrix.coverage`: each case once, sorted, with the parameters of its name; nothing else."""
    cases = {case.case_id: case for case in all_cases()}
    names = [record.get("case") for record in package.documents.listed]
    known = [name for name in names if isinstance(name, str) and name in cases]
    for name in names:
        if not (isinstance(name, str) and name in cases):
            log.found(f"{shown(name)} is no case of the matrix")
    for case_id in cases:
        if known.count(case_id) != 1:
            log.of_case(case_id).found(f"stands {known.count(case_id)} times, must stand once")
    if known != sorted(known):
        log.found("the cases are not sorted")
    for record in package.documents.records:
        if record["case"] in cases:
            _compare_parameters(record, cases[record["case"]], log.of_case(record["case"]))


def _compare_parameters(record: Record, case: Case, log: Log) -> None:
    wanted: dict[str, Any] = {
        "ranks": case.ranks,
        "batch": case.batch,
        "sequence": case.sequence,
        "seed": case.seed,
        "sum_order": case.sum_order,
        "fault": fault_object(case),
    }
    for key, value in wanted.items():
        log.compare(key, record[key], value)


def _is_whole(documents: Documents) -> bool:
    """Whether the records are those of the matrix, so that they can be summed up and drawn."""
    keyed = {
        case.case_id: (case.ranks, case.batch, case.sequence, case.seed, case.sum_order)
        for case in all_cases()
    }
    given = {
        record["case"]: tuple(
            record[key] for key in ("ranks", "batch", "sequence", "seed", "sum_order")
        )
        for record in documents.records
    }
    return given == keyed


def check_summary(package: Package, log: Log) -> None:
    """`summary.value`: E8 recomputed from the records and the files."""
    documents, sizes = package.documents, package.files.listing.sizes
    if not _is_whole(documents):
        log.found("can't be recomputed: the records are not those of the matrix")
        return
    entries = tape_bytes = 0
    for case in all_cases():
        tape_bytes += sizes.get(case_path(case.case_id, TAPE), 0)
        try:
            entries += package.files.read(case_path(case.case_id, LEDGER)).count(b"\n")
        except UnreadableError:
            continue
    wanted = summarize(documents.records, entries, tape_bytes)
    for path, got, want in _differences(documents.summary, wanted, ""):
        log.found(f"{path} is {shown(got)}, must be {shown(want)}")


def _differences(got: Any, wanted: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(got, dict) and isinstance(wanted, dict):
        for key in sorted(got.keys() | wanted.keys()):
            inner = f"{path}.{key}" if path else str(key)
            yield from _differences(got.get(key), wanted.get(key), inner)
    elif type(got) is not type(wanted) or got != wanted:
        yield path or "the summary", got, wanted


def check_invariance(package: Package, log: Log) -> None:
    """`invariance.groups`: `pairwise` outputs do not depend on the number of ranks."""
    for batch, sequence, seed in ((b, t, s) for b in BATCHES for t in SEQUENCES for s in SEEDS):
        first, *others = (
            f"clean-r{ranks}-b{batch}-t{sequence}-s{seed}-pairwise" for ranks in RANKS
        )
        for other in others:
            digests = [_output_digest(package, case_id) for case_id in (first, other)]
            if None in digests or digests[0] != digests[1]:
                log.of_case(other).found(f"the output is not that of {first}")


def _output_digest(package: Package, case_id: str) -> str | None:
    try:
        return package.files.digest(case_path(case_id, OUTPUT))
    except UnreadableError:
        return None


def check_report(package: Package, log: Log) -> None:
    """`report.value`: E9."""
    data = _read(package, REPORT, log)
    if data is not None:
        for problem in report_problems(data, package.documents):
            log.found(problem)


def check_figure(package: Package, log: Log) -> None:
    """`figure.value`: E10."""
    data = _read(package, FIGURE, log)
    if data is None:
        return
    if not _is_whole(package.documents):
        log.found("can't be drawn again: the records are not those of the matrix")
        return
    for problem in figure_problems(data, figure(package.documents.records).encode("utf-8")):
        log.found(problem)


def _read(package: Package, path: str, log: Log) -> bytes | None:
    try:
        return package.files.read(path)
    except UnreadableError as failure:
        log.found(str(failure))
        return None
