"""The checks over the whole package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import block
import bundle
import figure
import report
import source
import summary
from bundle import Bundle
from findings import Log, shown
from package import Unreadable, expected_paths, path_fault

PackageCheck = Callable[[Bundle, Log], None]

MANIFEST = "manifest.json"


def check_files(package: Bundle, log: Log) -> None:
    """`package.files`, E2 and E3, against the cases of the matrix and the manifest's list."""
    log.count(len(package.package.sizes))
    for problem in package.package.problems:
        log.found(problem)
    matrix = package.matrix.values()
    wanted = expected_paths(
        [case.name for case in matrix if case.fault is None],
        [case.name for case in matrix if case.fault is not None],
    )
    present = package.package.sizes.keys()
    for path in sorted(wanted - present):
        log.found(f"{path} is missing")
    directories = {path.rpartition("/")[0] for path in wanted} | {"cases"}
    for path in sorted((present - wanted) | (package.package.directories - directories)):
        log.found(f"{shown(path)} does not belong to the package")
    for path in sorted(present & wanted):
        try:
            package.package.digest(path)
        except Unreadable as error:
            log.found(str(error))
    listed = package.manifest.get("files", {}).keys()
    for path in sorted(listed):
        fault = path_fault(path)
        if fault is not None:
            log.found(f"path {shown(path)} of the manifest {fault}")
    for path in sorted(listed ^ (wanted - {MANIFEST})):
        state = "lists" if path in listed else "does not list"
        log.found(f"the manifest {state} {shown(path)}")


def check_schema(package: Bundle, log: Log) -> None:
    """`package.schema` for the package-wide JSON: canonical form, keys and types."""
    log.count(2 + len(package.listed))
    for problem in package.problems:
        log.found(problem)
    if package.summary:
        wanted = summary.recompute(package)
        for path, got, want in summary.differences(package.summary, wanted):
            if got is None or want is None or type(got) is not type(want):
                log.found(f"summary.json: {path} is {shown(got)}, of the form {shown(want)}")


def check_hash(package: Bundle, log: Log) -> None:
    """`package.hash`: size and digest of every file in the manifest."""
    if "files" not in package.manifest:
        log.found("the manifest has no usable files")
        return
    for path, claimed in package.manifest["files"].items():
        if path not in package.package.sizes:
            continue
        log.count()
        try:
            digest = package.package.digest(path)
        except Unreadable as error:
            log.found(str(error))
            continue
        got = {"bytes": digest.size, "sha256": digest.sha256}
        for key, value in got.items():
            fault = bundle.difference(f"{path}: {key}", claimed[key], value)
            if fault is not None:
                log.found(fault)


def check_source(package: Bundle, log: Log) -> None:
    """`package.source`."""
    if "source" not in package.manifest:
        log.found("the manifest has no usable source")
        return
    log.count(len(package.manifest["source"]["files"]))
    for problem in source.problems(package.manifest["source"], package.source):
        log.found(problem)


def check_program(package: Bundle, log: Log) -> None:
    """`package.program`: program.md P2 at each world size."""
    if "program_digests" not in package.manifest:
        log.found("the manifest has no usable program digests")
        return
    for ranks in package.ranks:
        log.count()
        claimed = package.manifest["program_digests"].get(str(ranks))
        fault = bundle.difference(f"digest for {ranks} ranks", claimed, block.digest(ranks))
        if fault is not None:
            log.found(fault)


def check_coverage(package: Bundle, log: Log) -> None:
    """`matrix.coverage`: every case once and no other, sorted, parameters as in its name."""
    names = [str(each.get("case")) for each in package.listed]
    log.count(len(names))
    if names != sorted(names):
        log.found("the cases are not sorted by name")
    claims = package.claims()
    for missing in sorted(package.matrix.keys() - claims.keys()):
        log.found("the case is missing", missing)
    seen: set[str] = set()
    for each in package.listed:
        name = each.get("case")
        if not isinstance(name, str) or name not in package.matrix:
            log.found(f"case {shown(name)} is not in the matrix")
            continue
        if name in seen:
            log.found("the case stands more than once", name)
        seen.add(name)
        for key, value in _parameters(package, name).items():
            fault = bundle.difference(key, each.get(key), value)
            if fault is not None:
                log.found(fault.replace("recomputed", "by its name"), name)


def _parameters(package: Bundle, name: str) -> dict[str, Any]:
    case = package.matrix[name]
    return {
        "ranks": case.ranks,
        "batch": case.batch,
        "sequence": case.sequence,
        "seed": case.seed,
        "sum_order": case.sum_order,
        "fault": None if case.fault is None else case.fault.record(),
    }


def check_summary(package: Bundle, log: Log) -> None:
    """`summary.value`, E8."""
    wanted = summary.recompute(package)
    log.count(sum(1 for _ in summary.leaves(wanted)))
    for path, got, want in summary.differences(package.summary, wanted):
        log.found(f"{path} is {shown(got)}, recomputed {shown(want)}")


def check_invariance(package: Bundle, log: Log) -> None:
    """`invariance.groups`: pairwise outputs of each (B, T, S) are equal at every world size."""
    for name, identical in summary.invariance_groups(package):
        log.count()
        if not identical:
            log.found(f"{name}: the pairwise outputs differ between world sizes, or one is missing")


def check_report(package: Bundle, log: Log) -> None:
    """`report.value`, E9."""
    data = _read(package, "report.md", log)
    if data is not None:
        records = package.by_name().values()
        log.count(len(records))
        for problem in report.problems(data, summary.recompute(package), records):
            log.found(problem)


def check_figure(package: Bundle, log: Log) -> None:
    """`figure.value`, E10."""
    data = _read(package, "figure.svg", log)
    if data is not None:
        measured, formula = _payload_bytes(package)
        records = package.by_name()
        log.count(len(records) + len(measured) + len(formula))
        for problem in figure.problems(data, records, measured, formula):
            log.found(problem)


def _read(package: Bundle, path: str, log: Log) -> bytes | None:
    try:
        return package.package.read(path)
    except Unreadable as error:
        log.found(str(error))
        return None


def _payload_bytes(
    package: Bundle,
) -> tuple[Mapping[tuple[int, int, int], int], Mapping[tuple[int, int, int], int]]:
    """Payload bytes by (ranks, batch, sequence): measured in the tapes, and by the formula."""
    measured: dict[tuple[int, int, int], int] = {}
    formula: dict[tuple[int, int, int], int] = {}
    for case in package.matrix.values():
        if case.fault is None:
            key = (case.ranks, case.batch, case.sequence)
            formula[key] = block.payload_bytes(*key)
            if case.name in package.measured:
                measured.setdefault(key, package.measured[case.name].payload_bytes)
    return measured, formula
