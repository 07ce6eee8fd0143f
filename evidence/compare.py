"""Two packages that should be the same bytes: where they differ, and what stands on either side.

The deepest cause comes first: frames, outputs and ledgers of cases, then what is computed from
them. A digest that differs explains nothing, so manifests are looked at last.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from coordinator.frame_difference import find_difference
from errors import EvidenceError
from evidence.package import CASES, FIGURE, LEDGER, MANIFEST, OUTPUT, REPORT, SUMMARY, TAPE
from wire.tape import TapeRecord, read_tape

NOTHING: Final = "(nothing)"
VALUE_CHARACTERS_MAX: Final = 120
# The first few of a file explain the rest.
PER_FILE_MAX: Final = 3
_ORDER: Final = (TAPE, OUTPUT, LEDGER, CASES, SUMMARY, REPORT, FIGURE, MANIFEST)


@dataclass(frozen=True)
class Difference:
    """One place where two packages differ. left, right: what stands there, as text.

    where: within the file, as `record 31: payload element 5` or `clean.frames`.
    """

    path: str
    case_id: str | None
    where: str
    left: str
    right: str

    def sentence(self) -> str:
        place = f"{self.path}: {self.where}" if self.where else self.path
        return f"{place}: {self.left} / {self.right}"


def differences(left: Mapping[str, bytes], right: Mapping[str, bytes]) -> list[Difference]:
    """Every file that differs, explained; at most PER_FILE_MAX places of each."""
    unequal = [path for path in left.keys() | right.keys() if left.get(path) != right.get(path)]
    found: list[Difference] = []
    for path in sorted(unequal, key=_order):
        places = _file_differences(path, left.get(path), right.get(path))
        for number, place in enumerate(places):
            if number == PER_FILE_MAX:
                break
            found.append(place)
    return found


def explain(left: Mapping[str, bytes], right: Mapping[str, bytes], limit: int = 20) -> str:
    """The differences as lines, `left / right` on each; empty when there are none."""
    found = differences(left, right)
    lines = [difference.sentence() for difference in found[:limit]]
    if len(found) > limit:
        lines.append(f"... and {len(found) - limit} more")
    return "\n".join(lines)


def _order(path: str) -> tuple[int, str]:
    name = path.rpartition("/")[2]
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), path)


def _file_differences(path: str, left: bytes | None, right: bytes | None) -> Iterator[Difference]:
    parts = path.split("/")
    case_id = parts[1] if parts[0] == "cases" and len(parts) == 3 else None
    if left is None or right is None:
        sides = [NOTHING if data is None else f"{len(data)} bytes" for data in (left, right)]
        yield Difference(path, case_id, "", *sides)
        return
    reader = _READERS.get(parts[-1], _text_places)
    for where, *sides in reader(left, right):
        # A line of cases.jsonl is about the case that it begins with.
        named = where.split(":")[0] if parts[-1] == CASES else case_id
        yield Difference(path, named, where, *map(_cut, sides))


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}..."


# A place of a file, and what stands there on the left and on the right.
_Place = tuple[str, str, str]


def _tape_places(left: bytes, right: bytes) -> Iterator[_Place]:
    try:
        tapes = [read_tape(left), read_tape(right)]
    except EvidenceError as failure:
        yield failure.message, f"{len(left)} bytes", f"{len(right)} bytes"
        return
    for index, (ours, theirs) in enumerate(zip_longest(*tapes)):
        if ours == theirs:
            continue
        if ours is None or theirs is None or ours[:2] != theirs[:2]:
            yield f"record {index}", _described(ours), _described(theirs)
            return
        found = find_difference(ours.raw, theirs.raw)
        if found is not None:
            where = f"record {index} ({_described(ours)}): {found.field}"
            yield where, found.taped, found.replayed


def _described(record: TapeRecord | None) -> str:
    if record is None:
        return NOTHING
    return f"{len(record.raw)} bytes from {record.sender.value}, rank {record.rank}"


def _output_places(left: bytes, right: bytes) -> Iterator[_Place]:
    if len(left) != len(right):
        yield "length", f"{len(left)} bytes", f"{len(right)} bytes"
    for at in range(0, min(len(left), len(right)) - 3, 4):
        if left[at : at + 4] != right[at : at + 4]:
            yield f"element {at // 4}", _float_text(left, at), _float_text(right, at)


def _float_text(data: bytes, at: int) -> str:
    (value,) = struct.unpack_from("<f", data, at)
    return f"{value.hex()} = {value!r}"


def _json_places(left: bytes, right: bytes) -> Iterator[_Place]:
    try:
        yield from _value_places(json.loads(left), json.loads(right), "")
    except (ValueError, RecursionError):
        yield from _text_places(left, right)


def _value_places(left: Any, right: Any, path: str) -> Iterator[_Place]:
    """Every leaf that differs, by its dotted path."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            inner = f"{path}.{key}" if path else str(key)
            if key not in left or key not in right:
                yield inner, _json_text(left, key), _json_text(right, key)
            else:
                yield from _value_places(left[key], right[key], inner)
    elif left != right or type(left) is not type(right):
        yield path, json.dumps(left), json.dumps(right)


def _json_text(value: Mapping[str, Any], key: str) -> str:
    return json.dumps(value[key]) if key in value else NOTHING


def _lines_places(left: bytes, right: bytes) -> Iterator[_Place]:
    """The lines of a .jsonl file: cases by their name, ledger entries by their number."""
    lines = zip_longest(left.splitlines(), right.splitlines(), fillvalue=b"")
    for number, (ours, theirs) in enumerate(lines):
        if ours == theirs:
            continue
        try:
            values = json.loads(ours or b"{}"), json.loads(theirs or b"{}")
        except (ValueError, RecursionError):
            yield f"line {number + 1}", repr(ours), repr(theirs)
            continue
        name = values[0].get("case", f"entry {number}")
        for where, our_value, their_value in _value_places(*values, ""):
            yield f"{name}: {where}", our_value, their_value


def _text_places(left: bytes, right: bytes) -> Iterator[_Place]:
    lines = zip_longest(left.split(b"\n"), right.split(b"\n"))
    for number, (ours, theirs) in enumerate(lines, 1):
        if ours != theirs:
            at = _first_unequal(ours or b"", theirs or b"")
            sides = [
                NOTHING if line is None else repr(line[max(0, at - 20) : at + 80])[1:]
                for line in (ours, theirs)
            ]
            yield f"line {number} from column {max(0, at - 20) + 1}", sides[0], sides[1]


def _first_unequal(left: bytes, right: bytes) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


_READERS: Final[dict[str, Callable[[bytes, bytes], Iterator[_Place]]]] = {
    TAPE: _tape_places,
    OUTPUT: _output_places,
    LEDGER: _lines_places,
    CASES: _lines_places,
    SUMMARY: _json_places,
    MANIFEST: _json_places,
}
