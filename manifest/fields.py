"""The table of a run manifest's fields: type, default and allowed values of each.

docs/spec/manifest.md shows the same table and a test compares them; another test compares it with
run_manifest.proto. Rules that tie several fields together are in manifest/agreement.py.

The block's limits are stated here again, because this package does not know the block;
coordinator/manifest_limits_test.py holds them against the originals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from manifest.value_rules import EachIn, FieldType, OneOf, Pattern, Range, Rule, Switch, Value

Settings = dict[str, Value]

BLOCK: Final = "block"
MODEL_PROGRAMS: Final = ("qwen35/replicated", "qwen35/sharded")
SUM_ORDERS: Final = ("rank", "pairwise")
FAULT_KINDS: Final = (
    "rank_exit",
    "delay",
    "checksum_corruption",
    "stale_epoch",
    "duplicate_sequence",
    "metadata_mismatch",
    "truncated_frame",
    "cancellation_race",
)
FAULT_PHASES: Final = ("attention", "mlp", "result")

BLOCK_DEGREES: Final = (1, 2, 4)
BLOCK_BATCH_MAX: Final = 64
BLOCK_SEQUENCE_MAX: Final = 512
# One worker per logical device, and the table of devices has 16 entries.
RANKS_MAX: Final = 16
# Ledgers hold integers below 2^53 (docs/spec/metadata.md, M1); half of them are left for steps.
EPOCH_MAX: Final = 1 << 52
EXACT_INTEGER_MAX: Final = (1 << 53) - 1
# An hour: longer than any load that is worth waiting for.
DEADLINE_MS_MAX: Final = 3_600_000

_DEADLINE: Final = Range(1, DEADLINE_MS_MAX)
_DIGEST: Final = Pattern(re.compile(r"(?:[0-9a-f]{64})?"), "empty or 64 lower-case hex digits")
_IDENTITY: Final = Pattern(re.compile(r"[ -~]{0,128}"), "at most 128 printable ASCII characters")
_PORT: Final = r"(?:[1-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LOOPBACK: Final = rf"(?:localhost|127(?:\.{_OCTET}){{3}}|\[::1\]|::1)"
_ADDRESS: Final = Pattern(
    re.compile(rf"|unix:[^\x00-\x1f\x7f\ud800-\udfff]{{1,107}}|(?:tcp:)?{_LOOPBACK}:{_PORT}"),
    "empty, unix:PATH, HOST:PORT or tcp:HOST:PORT with a loopback HOST",
)
_FOLDER: Final = Pattern(re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{0,4096}"), "a path")


@dataclass(frozen=True)
class Field:
    """path: dotted, as in the text form. default None: has to be given where its group is used."""

    path: str
    type: FieldType
    rule: Rule
    default: Value | None


FIELDS: Final = (
    Field("program", FieldType.TEXT, OneOf((BLOCK, *MODEL_PROGRAMS)), BLOCK),
    Field("ranks", FieldType.INTEGER, Range(1, RANKS_MAX), 4),
    Field("batch", FieldType.INTEGER, Range(0, BLOCK_BATCH_MAX), 2),
    Field("sequence", FieldType.INTEGER, Range(0, BLOCK_SEQUENCE_MAX), 7),
    Field("seed", FieldType.INTEGER, Range(0, EXACT_INTEGER_MAX), 1),
    Field("sum_order", FieldType.TEXT, OneOf(SUM_ORDERS), "rank"),
    Field("epoch", FieldType.INTEGER, Range(1, EPOCH_MAX), 1),
    Field("transport", FieldType.TEXT, OneOf(("unix", "tcp")), "unix"),
    Field("listen", FieldType.TEXT, _ADDRESS, ""),
    Field("external_workers", FieldType.SWITCH, Switch(), False),
    Field("deadlines.handshake_ms", FieldType.INTEGER, _DEADLINE, 20_000),
    Field("deadlines.load_ms", FieldType.INTEGER, _DEADLINE, 20_000),
    Field("deadlines.phase_ms", FieldType.INTEGER, _DEADLINE, 10_000),
    Field("deadlines.send_ms", FieldType.INTEGER, _DEADLINE, 5_000),
    Field("deadlines.close_ms", FieldType.INTEGER, _DEADLINE, 5_000),
    Field("model.checkpoint", FieldType.TEXT, _FOLDER, None),
    Field("model.weights_dtype", FieldType.TEXT, OneOf(("auto", "float32", "bfloat16")), "auto"),
    Field("model.compute_dtype", FieldType.TEXT, OneOf(("float32", "float64")), "float32"),
    Field("model.max_batch", FieldType.INTEGER, Range(1, 1_024), 8),
    Field("model.max_step_tokens", FieldType.INTEGER, Range(1, 65_536), 512),
    Field("model.page_tokens", FieldType.INTEGER, Range(1, 4_096), 16),
    Field("model.check_weights", FieldType.SWITCH, Switch(), False),
    Field(
        "model.device_ordinals",
        FieldType.INTEGERS,
        EachIn(Range(0, RANKS_MAX - 1), RANKS_MAX),
        (),
    ),
    Field("model.execution", FieldType.TEXT, OneOf(("eager", "captured")), "eager"),
    Field(
        "model.rank_memory_bytes",
        FieldType.INTEGERS,
        EachIn(Range(1, EXACT_INTEGER_MAX), RANKS_MAX),
        (),
    ),
    Field("fault.kind", FieldType.TEXT, OneOf(FAULT_KINDS), None),
    Field("fault.rank", FieldType.INTEGER, Range(0, RANKS_MAX - 1), None),
    Field("fault.phase", FieldType.TEXT, OneOf(FAULT_PHASES), None),
    Field("source_identity", FieldType.TEXT, _DIGEST, ""),
    Field("numerics_identity", FieldType.TEXT, _IDENTITY, ""),
)

FIELD_BY_PATH: Final = {field.path: field for field in FIELDS}
GROUPS: Final = ("deadlines", "model", "fault")


def group_of(path: str) -> str:
    """The group a path belongs to; empty for a field of the manifest itself."""
    return path.partition(".")[0] if "." in path else ""
