"""The run manifest: one immutable value that decides what a run computes and how long it may wait.

Built once, from the text form, from flags, from both, or from a recorded manifest.json; every
default is written out and every problem is reported in one ConfigError before any process starts.
A RunManifest that exists is valid: construction checks it. It must not know processes or the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from google.protobuf import text_format

from errors import ConfigError, ConfigProblem, MisuseError
from manifest import run_manifest_pb2
from manifest.agreement import complete, find_problems
from manifest.fields import FIELD_BY_PATH, FIELDS, Settings, group_of
from manifest.json_form import read_json_settings, write_json
from manifest.text_form import read_settings
from manifest.value_rules import FieldType, Value, parse_integer, shown


@dataclass(frozen=True)
class Deadlines:
    """How long one wait may take, in milliseconds (docs/spec/session.md, S8)."""

    handshake_ms: int
    load_ms: int
    phase_ms: int
    send_ms: int
    close_ms: int


@dataclass(frozen=True)
class ModelOptions:
    """What a model program needs beside the fields that every program has.

    device_ordinals: by rank, empty when unbound. rank_memory_bytes: by rank, one value for all
    ranks, or empty for what the machine has.
    """

    checkpoint: str
    weights_dtype: str
    compute_dtype: str
    max_batch: int
    max_step_tokens: int
    page_tokens: int
    check_weights: bool
    device_ordinals: tuple[int, ...]
    execution: str
    rank_memory_bytes: tuple[int, ...]


@dataclass(frozen=True)
class FaultSpec:
    """One planned fault: what `rank` does wrong in `phase`."""

    kind: str
    rank: int
    phase: str


@dataclass(frozen=True)
class RunManifest:
    """All fields of docs/spec/manifest.md. Raises ConfigError with every problem it has.

    batch, sequence: 0 with a model program. listen: empty for an address of the coordinator's own
    making. The identities are empty in an input that demands none.
    """

    program: str
    ranks: int
    batch: int
    sequence: int
    seed: int
    sum_order: str
    epoch: int
    transport: str
    listen: str
    external_workers: bool
    deadlines: Deadlines
    model: ModelOptions | None
    fault: FaultSpec | None
    source_identity: str
    numerics_identity: str

    def __post_init__(self) -> None:
        problems = find_problems(self.settings(), frozenset())
        if problems:
            raise ConfigError(problems)

    def settings(self) -> Settings:
        """The fields by dotted path, in the order of the table, without the unused groups."""
        settings: Settings = {}
        for field in FIELDS:
            group = group_of(field.path)
            holder = getattr(self, group) if group else self
            if holder is not None:
                settings[field.path] = getattr(holder, field.path.removeprefix(group + "."))
        return settings

    def to_text(self) -> str:
        """The text form (protobuf text format) with every field; read_text reads it back."""
        message = run_manifest_pb2.RunManifest()
        for path, value in self.settings().items():
            group = group_of(path)
            holder = getattr(message, group) if group else message
            name = path.removeprefix(group + ".")
            if isinstance(value, tuple):
                getattr(holder, name).extend(value)
            else:
                setattr(holder, name, value)
        return text_format.MessageToString(message)

    def to_json_bytes(self) -> bytes:
        """manifest.json: canonical JSON with every field. Equal manifests give equal bytes."""
        return write_json(self.settings())

    def with_identities(self, source: str, numerics: str) -> RunManifest:
        """The manifest with the identities of this build.

        Raises ConfigError when the input demanded others: a run of other sources is another run.
        """
        problems = []
        for path, demanded, actual in (
            ("source_identity", self.source_identity, source),
            ("numerics_identity", self.numerics_identity, numerics),
        ):
            if demanded not in ("", actual):
                problems.append(ConfigProblem(path, demanded, f"this build has {shown(actual)}"))
        if problems:
            raise ConfigError(problems, "config.identity")
        return replace(self, source_identity=source, numerics_identity=numerics)


def read_text(data: bytes, *, allow_fault: bool = False) -> RunManifest:
    """The manifest that `data` (text form) describes. Raises ConfigError."""
    return from_flags({}, data, allow_fault=allow_fault)


def read_json(data: bytes) -> RunManifest:
    """The manifest recorded as `data` (manifest.json of a run). Raises ConfigError."""
    return _build(read_json_settings(data), [], frozenset())


def from_flags(
    flags: Mapping[str, str], text: bytes | None = None, *, allow_fault: bool = False
) -> RunManifest:
    """The manifest that flags describe, on top of the text form `text` where there is one.

    flags: dotted field path -> value as typed. A flag that says something else than the text form
    is a contradiction and never wins silently.
    Raises ConfigError with all problems: `config.contradiction` when these are all there is.
    """
    if text is None:
        settings, problems, unreadable = Settings(), list[ConfigProblem](), set[str]()
    else:
        settings, problems, refused = read_settings(text)
        unreadable = set(refused)
    contradictions = []
    for path, typed in flags.items():
        value = _convert_flag(path, typed)
        if value is None:
            rule = f"must be {FIELD_BY_PATH[path].type.value}"
            problems.append(ConfigProblem(path, shown(typed), rule))
            unreadable.add(path)
        elif settings.setdefault(path, value) != value:
            rule = f"contradicts the manifest, which says {shown(settings[path])}"
            contradictions.append(ConfigProblem(path, shown(typed), rule))
    faults = [path for path in (*settings, *unreadable) if group_of(path) == "fault"]
    if faults and not allow_fault:
        rule = "is refused: only the entry that is built for tests plants faults"
        problems.append(ConfigProblem("fault", "given", rule))
        for path in faults:
            settings.pop(path, None)
    return _build(settings, problems, frozenset(unreadable), contradictions)


def _convert_flag(path: str, typed: str) -> Value | None:
    if path not in FIELD_BY_PATH:
        raise MisuseError(f"no field of a manifest is called {path!r}")
    match FIELD_BY_PATH[path].type:
        case FieldType.TEXT:
            return typed
        case FieldType.INTEGER:
            return parse_integer(typed)
        case FieldType.SWITCH:
            return {"true": True, "false": False}.get(typed)
        case FieldType.INTEGERS:
            numbers = [parse_integer(item) for item in typed.split(",")]
            integers = tuple(number for number in numbers if number is not None)
            return integers if len(integers) == len(numbers) else None


def _build(
    given: Settings,
    problems: list[ConfigProblem],
    unreadable: frozenset[str],
    contradictions: list[ConfigProblem] | None = None,
) -> RunManifest:
    settings = complete(given)
    contradictions = contradictions or []
    found = [*problems, *find_problems(settings, unreadable)]
    if found or contradictions:
        code = "config.invalid" if found else "config.contradiction"
        raise ConfigError([*found, *contradictions], code)
    return _from_settings(settings)


def _from_settings(settings: Settings) -> RunManifest:
    model = fault = None
    if "model.checkpoint" in settings:
        model = ModelOptions(
            checkpoint=_text(settings, "model.checkpoint"),
            weights_dtype=_text(settings, "model.weights_dtype"),
            compute_dtype=_text(settings, "model.compute_dtype"),
            max_batch=_integer(settings, "model.max_batch"),
            max_step_tokens=_integer(settings, "model.max_step_tokens"),
            page_tokens=_integer(settings, "model.page_tokens"),
            check_weights=settings["model.check_weights"] is True,
            device_ordinals=_integers(settings, "model.device_ordinals"),
            execution=_text(settings, "model.execution"),
            rank_memory_bytes=_integers(settings, "model.rank_memory_bytes"),
        )
    if "fault.kind" in settings:
        fault = FaultSpec(
            kind=_text(settings, "fault.kind"),
            rank=_integer(settings, "fault.rank"),
            phase=_text(settings, "fault.phase"),
        )
    deadlines = Deadlines(
        handshake_ms=_integer(settings, "deadlines.handshake_ms"),
        load_ms=_integer(settings, "deadlines.load_ms"),
        phase_ms=_integer(settings, "deadlines.phase_ms"),
        send_ms=_integer(settings, "deadlines.send_ms"),
        close_ms=_integer(settings, "deadlines.close_ms"),
    )
    return RunManifest(
        program=_text(settings, "program"),
        ranks=_integer(settings, "ranks"),
        batch=_integer(settings, "batch"),
        sequence=_integer(settings, "sequence"),
        seed=_integer(settings, "seed"),
        sum_order=_text(settings, "sum_order"),
        epoch=_integer(settings, "epoch"),
        transport=_text(settings, "transport"),
        listen=_text(settings, "listen"),
        external_workers=settings["external_workers"] is True,
        deadlines=deadlines,
        model=model,
        fault=fault,
        source_identity=_text(settings, "source_identity"),
        numerics_identity=_text(settings, "numerics_identity"),
    )


def _text(settings: Settings, path: str) -> str:
    value = settings[path]
    if not isinstance(value, str):
        raise MisuseError(f"{path} is not a text")
    return value


def _integer(settings: Settings, path: str) -> int:
    value = settings[path]
    if type(value) is not int:
        raise MisuseError(f"{path} is not an integer")
    return value


def _integers(settings: Settings, path: str) -> tuple[int, ...]:
    value = settings[path]
    if not isinstance(value, tuple):
        raise MisuseError(f"{path} is not a list of integers")
    return value
