"""Everything that can be wrong with a manifest's values, found in one pass.

`complete` fills in the defaults, `find_problems` judges each field by its own rule and then the
fields against each other. It must not know where the values came from (file, flags, code).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from errors import ConfigProblem
from manifest.fields import (
    BLOCK,
    BLOCK_DEGREES,
    FIELD_BY_PATH,
    FIELDS,
    GROUPS,
    MODEL_PROGRAMS,
    Settings,
    group_of,
)
from manifest.value_rules import Value, shown


def complete(given: Settings) -> Settings:
    """`given` with the default of every field that is not in it, in the order of the table.

    Those of `model` are added only for a model program, those of `fault` never. The transport
    follows from a given address; batch and sequence are 0 for a model program.
    """
    settings: Settings = {}
    for field in FIELDS:
        if field.path in given:
            settings[field.path] = given[field.path]
        elif field.default is not None and _group_applies(group_of(field.path), given):
            settings[field.path] = _default(field.path, field.default, given)
    return settings


def find_problems(settings: Settings, unreadable: frozenset[str]) -> list[ConfigProblem]:
    """All problems of completed `settings`, in the order of the table, then of the agreements.

    unreadable: fields that were given but could not be read; agreements about them are not judged.
    """
    problems = []
    refused = set(unreadable)
    for path, value in settings.items():
        violation = FIELD_BY_PATH[path].rule.violation(value)
        if violation:
            refused.add(path)
            problems.append(ConfigProblem(path, shown(value), violation))
    for agreement in _AGREEMENTS:
        if refused.isdisjoint(agreement.about):
            problems.extend(agreement.judge(settings))
    problems.extend(_missing(settings, unreadable))
    return problems


def _group_applies(group: str, given: Settings) -> bool:
    if group == "model":
        return given.get("program") in MODEL_PROGRAMS
    return group in ("", "deadlines") or any(group_of(path) == group for path in given)


def _default(path: str, default: Value, given: Settings) -> Value:
    if path in ("batch", "sequence") and given.get("program") in MODEL_PROGRAMS:
        return 0
    address = given.get("listen")
    if path == "transport" and isinstance(address, str) and address:
        return transport_of(address)
    return default


def transport_of(address: str) -> str:
    """The transport that an address is for."""
    return "unix" if address.startswith("unix:") else "tcp"


def _missing(settings: Settings, unreadable: frozenset[str]) -> Iterator[ConfigProblem]:
    """Fields without a default whose group is in use."""
    for group in GROUPS:
        used = _group_applies(group, settings)
        for field in FIELDS:
            absent = field.path not in settings and field.path not in unreadable
            if used and absent and group_of(field.path) == group:
                yield ConfigProblem(field.path, "(not given)", f"must be given with {group}")


def _integer(settings: Settings, path: str) -> int:
    value = settings[path]
    return value if isinstance(value, int) else 0


def _count(settings: Settings, path: str) -> int:
    value = settings.get(path, ())
    return len(value) if isinstance(value, tuple) else 0


def _block_ranks(settings: Settings) -> Iterator[ConfigProblem]:
    ranks = settings["ranks"]
    if settings["program"] == BLOCK and ranks not in BLOCK_DEGREES:
        degrees = ", ".join(str(degree) for degree in BLOCK_DEGREES)
        rule = f"must divide the block's KV heads and columns; degrees that work: {degrees}"
        yield ConfigProblem("ranks", shown(ranks), rule)


def _block_shape(settings: Settings) -> Iterator[ConfigProblem]:
    if settings["program"] != BLOCK:
        for path in ("batch", "sequence"):
            if settings[path] != 0:
                yield ConfigProblem(path, shown(settings[path]), "belongs to the block alone")
        return
    for path in ("batch", "sequence"):
        if settings[path] == 0:
            yield ConfigProblem(path, "0", "must be at least 1")


def _block_has_no_model(settings: Settings) -> Iterator[ConfigProblem]:
    if settings["program"] == BLOCK:
        for path, value in settings.items():
            if group_of(path) == "model":
                yield ConfigProblem(path, shown(value), "belongs to a model program, not the block")


def _checkpoint_is_named(settings: Settings) -> Iterator[ConfigProblem]:
    if settings.get("model.checkpoint") == "":
        yield ConfigProblem("model.checkpoint", shown(""), "must name a folder")


def _address_fits(settings: Settings) -> Iterator[ConfigProblem]:
    address, transport = str(settings["listen"]), settings["transport"]
    if address and transport_of(address) != transport:
        rule = f"must be an address of transport {shown(transport)}"
        yield ConfigProblem("listen", shown(address), rule)
    if settings["external_workers"] is True and not address:
        rule = "needs listen, so that the workers know where to connect"
        yield ConfigProblem("external_workers", "true", rule)


def _fault_is_in_range(settings: Settings) -> Iterator[ConfigProblem]:
    if "fault.rank" in settings and "ranks" in settings:
        rank, ranks = _integer(settings, "fault.rank"), _integer(settings, "ranks")
        if rank >= ranks:
            rule = f"must be below ranks, {ranks}"
            yield ConfigProblem("fault.rank", shown(rank), rule)


def _faults_are_ours_to_start(settings: Settings) -> Iterator[ConfigProblem]:
    faulty = any(group_of(path) == "fault" for path in settings)
    if faulty and settings["external_workers"] is True:
        rule = "contradicts fault: a fault is planted in a worker that the coordinator starts"
        yield ConfigProblem("external_workers", "true", rule)
    if faulty and settings["program"] != BLOCK:
        rule = "contradicts fault: faults by phase belong to the block"
        yield ConfigProblem("program", shown(settings["program"]), rule)


def _per_rank_lists(settings: Settings) -> Iterator[ConfigProblem]:
    ordinals, ranks = settings.get("model.device_ordinals", ()), settings["ranks"]
    if isinstance(ordinals, tuple) and len(set(ordinals)) < len(ordinals):
        rule = "must name each device once"
        yield ConfigProblem("model.device_ordinals", shown(ordinals), rule)
    for path, counts in (
        ("model.device_ordinals", (0, ranks)),
        ("model.rank_memory_bytes", (0, 1, ranks)),
    ):
        if _count(settings, path) not in counts:
            allowed = " or ".join(str(count) for count in dict.fromkeys(counts))
            rule = f"must hold {allowed} values for {ranks} ranks"
            yield ConfigProblem(path, shown(settings[path]), rule)


def _nothing_is_captured(settings: Settings) -> Iterator[ConfigProblem]:
    if settings.get("model.execution") == "captured":
        rule = "is refused: a captured step cannot wait for other ranks"
        if settings["ranks"] == 1:
            rule = "is refused: this runtime has eager execution alone"
        yield ConfigProblem("model.execution", "captured", rule)


@dataclass(frozen=True)
class _Agreement:
    """about: the fields it reads; it is judged only when all of them are good in themselves."""

    about: frozenset[str]
    judge: Callable[[Settings], Iterator[ConfigProblem]]


_AGREEMENTS: Final = (
    _Agreement(frozenset({"program", "ranks"}), _block_ranks),
    _Agreement(frozenset({"program", "batch", "sequence"}), _block_shape),
    _Agreement(frozenset({"program"}), _block_has_no_model),
    _Agreement(frozenset({"model.checkpoint"}), _checkpoint_is_named),
    _Agreement(frozenset({"listen", "transport", "external_workers"}), _address_fits),
    _Agreement(frozenset({"fault.rank", "ranks"}), _fault_is_in_range),
    _Agreement(frozenset({"external_workers", "program"}), _faults_are_ours_to_start),
    _Agreement(
        frozenset({"model.device_ordinals", "model.rank_memory_bytes", "ranks"}), _per_rank_lists
    ),
    _Agreement(frozenset({"model.execution", "ranks"}), _nothing_is_captured),
)
