"""Packages that nobody made in good faith: each must end in findings, never in a crash or a flood.

Each is an alteration of a package's folder. A file is replaced, never written into.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from evidence.package import CASES, FIGURE, LEDGER, MANIFEST, OUTPUT, REPORT, SUMMARY, TAPE
from evidence.tampering.taped import case_path
from wire.tape import TAPE_MAGIC

CASE: Final = "clean-r2-b1-t2-s1-rank"
MIB: Final = 1 << 20
Hostility = Callable[[Path], None]


def _put(path: str, data: bytes) -> Hostility:
    """Another content."""

    def change(root: Path) -> None:
        (root / path).unlink(missing_ok=True)
        (root / path).write_bytes(data)

    return change


def _changed(path: str, change: Callable[[bytes], bytes]) -> Hostility:
    return lambda root: _put(path, change((root / path).read_bytes()))(root)


def _value(path: str, *keys: str, value: Any) -> Hostility:
    """Another value in a JSON document; the first line of cases.jsonl."""

    def change(data: bytes) -> bytes:
        first, rest = data.split(b"\n", 1)
        document = json.loads(first)
        at = document
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n" + rest

    return _changed(path, change)


def _replaced(path: str, make: Callable[[Path], object]) -> Hostility:
    """Something that is no regular file."""

    def change(root: Path) -> None:
        (root / path).unlink()
        make(root / path)

    return change


def _sparse(path: str, size: int) -> Hostility:
    def change(root: Path) -> None:
        (root / path).unlink()
        with (root / path).open("wb") as file:
            file.truncate(size)

    return change


def _many_files(root: Path) -> None:
    for number in range(5_000):
        (root / "cases" / CASE / str(number)).touch()


def _deep_folders(root: Path) -> None:
    (root / "cases" / CASE / "/".join(["deep"] * 200)).mkdir(parents=True)


def _strange_names(root: Path) -> None:
    for name in (b"new\nline", b"\xff\xfe", b"\x1b[31mred", b"a" * 250):
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).touch()


def _linked_folder(root: Path) -> None:
    folder = root / "cases" / CASE
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.symlink_to("/etc")


def _record(direction: int, rank: int, size: int, raw: bytes = b"") -> bytes:
    return struct.pack("!BHI", direction, rank, size) + raw


def _frame(kind: int, metadata: bytes, payload_bytes: int = 0, payload: bytes = b"") -> bytes:
    """A frame whose lengths are as announced and whose checksum is wrong."""
    head = struct.pack("!4sBBHQQIII", b"RKPF", 1, kind, 0, 0, 0, len(metadata), payload_bytes, 0)
    raw = head + metadata + payload
    return _record(1, 0, len(raw), raw)


_NESTED: Final = b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n"
_BOMB: Final = b'{"a":[' + b"[],".join([b""] * (MIB + MIB // 4)) + b"[]]}\n"
_DIGITS: Final = b'{"a":' + b"9" * (2 * MIB) + b"}\n"
_KEYS: Final = b"{" + b",".join(b'"%d":0' % number for number in range(300_000)) + b"}\n"
_LAUGHS: Final = (
    b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "ha">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
    + b"]><svg>&j;</svg>"
)
_OUTSIDE: Final = b'<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/passwd">]><svg>&a;</svg>'
_SVG: Final = b'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="960" height="900">'

HOSTILITIES: Final[dict[str, tuple[str, Hostility]]] = {
    "no manifest": ("package.files", lambda root: (root / MANIFEST).unlink()),
    "an empty manifest": ("package.schema", _put(MANIFEST, b"")),
    "half a manifest": ("package.schema", _changed(MANIFEST, lambda data: data[: len(data) // 2])),
    "a manifest that is an array": ("package.schema", _put(MANIFEST, b"[]\n")),
    "a manifest with a byte order mark": (
        "package.schema",
        _changed(MANIFEST, lambda data: b"\xef\xbb\xbf" + data),
    ),
    "a manifest with carriage returns": (
        "package.schema",
        _changed(MANIFEST, lambda data: data[:-1] + b"\r\n"),
    ),
    "100,000 levels": ("package.schema", _put(MANIFEST, _NESTED)),
    "a million arrays": ("package.schema", _put(SUMMARY, _BOMB)),
    "two million digits": ("package.schema", _put(SUMMARY, _DIGITS)),
    "300,000 keys": ("package.schema", _put(MANIFEST, _KEYS)),
    "a line of a million arrays": ("package.schema", _put(CASES, _BOMB)),
    "a million lines": ("package.schema", _put(CASES, b"{}\n" * MIB)),
    "NaN": ("package.schema", _put(SUMMARY, b'{"a":NaN}\n')),
    "Infinity": ("package.schema", _put(SUMMARY, b'{"a":-Infinity}\n')),
    "a float": ("package.schema", _value(MANIFEST, "case_count", value=288.0)),
    "a large exponent": ("package.schema", _put(SUMMARY, b'{"a":1e999999999}\n')),
    "a key twice": (
        "package.schema",
        _changed(MANIFEST, lambda data: b'{"case_count":288,' + data[1:]),
    ),
    "a lone surrogate": ("package.schema", _put(SUMMARY, b'{"a":"\\ud800"}\n')),
    "bytes that are no text": ("package.schema", _put(SUMMARY, bytes(range(256)))),
    "a list of files that is a string": ("package.schema", _value(MANIFEST, "files", value="x")),
    "a negative size": (
        "package.schema",
        _value(MANIFEST, "files", REPORT, value={"bytes": -1, "sha256": "0" * 64}),
    ),
    "a path out of the package": (
        "package.files",
        _value(MANIFEST, "files", "../../etc/passwd", value={"bytes": 1, "sha256": "0" * 64}),
    ),
    "an absolute path": (
        "package.files",
        _value(MANIFEST, "files", "/etc/passwd", value={"bytes": 1, "sha256": "0" * 64}),
    ),
    "a source out of the tree": (
        "package.source",
        _value(MANIFEST, "source", "files", "../secret.py", value="0" * 64),
    ),
    "a null case": ("package.schema", _value(CASES, "case", value=None)),
    "a case that is an array": ("package.schema", _value(CASES, "case", value=[])),
    "a case that is a path": ("matrix.coverage", _value(CASES, "case", value="../../etc")),
    "ranks that are true": ("package.schema", _value(CASES, "ranks", value=True)),
    "ranks without end": ("package.schema", _value(CASES, "ranks", value=1 << 52)),
    "an error that is a list": ("package.schema", _value(CASES, "error", value=[{}])),
    "a fault of a clean case": (
        "package.schema",
        _value(CASES, "fault", value={"kind": "delay", "phase": "mlp", "rank": 0}),
    ),
    "errors of a summary": (
        "package.schema",
        _value(SUMMARY, "clean", "max_abs_error", value="nan"),
    ),
    "a file of 1 GiB": ("package.files", _sparse(case_path(CASE, TAPE), 1 << 30)),
    "a report of 1 GiB": ("package.files", _sparse(REPORT, 1 << 30)),
    "5,000 files": ("package.files", _many_files),
    "200 folders deep": ("package.files", _deep_folders),
    "strange names": ("package.files", _strange_names),
    "a link": ("package.files", _replaced(REPORT, lambda path: path.symlink_to("/etc/passwd"))),
    "a link to itself": ("package.files", _replaced(FIGURE, lambda path: path.symlink_to(path))),
    "a linked folder": ("package.files", _linked_folder),
    "a FIFO": ("package.files", _replaced(SUMMARY, os.mkfifo)),
    "a FIFO for a tape": ("package.files", _replaced(case_path(CASE, TAPE), os.mkfifo)),
    "a folder for a file": ("package.files", _replaced(MANIFEST, os.mkdir)),
    "an empty folder": ("package.files", lambda root: (root / "cases" / "empty").mkdir()),
    "a tape of nothing": ("case.tape", _put(case_path(CASE, TAPE), b"")),
    "a tape of another magic": ("case.tape", _put(case_path(CASE, TAPE), b"RKPTAPE2")),
    "a tape of endless length": (
        "case.tape",
        _put(case_path(CASE, TAPE), TAPE_MAGIC + _record(0, 0, 0xFFFFFFFF)),
    ),
    "half a million records": (
        "case.tape",
        _put(case_path(CASE, TAPE), TAPE_MAGIC + _record(1, 0, 0) * 599_000),
    ),
    "a rank of 65,535": (
        "case.tape",
        _put(case_path(CASE, TAPE), TAPE_MAGIC + _record(1, 65_535, 4, b"RKPF")),
    ),
    "a third direction": (
        "case.tape",
        _put(case_path(CASE, TAPE), TAPE_MAGIC + _record(2, 0, 0)),
    ),
    "a frame of deep metadata": (
        "case.tape",
        _put(case_path(CASE, TAPE), TAPE_MAGIC + _frame(1, b"[" * 65_000)),
    ),
    "a frame that announces 16 MiB": (
        "case.tape",
        _put(case_path(CASE, TAPE), TAPE_MAGIC + _frame(7, b"{}", 16 * MIB)),
    ),
    "a ledger of nothing": ("case.tape", _put(case_path(CASE, LEDGER), b"")),
    "a million ledger lines": ("package.schema", _put(case_path(CASE, LEDGER), b"{}\n" * MIB)),
    "a ledger line of 4 MiB": (
        "package.schema",
        _put(case_path(CASE, LEDGER), b'{"a":"' + b"x" * (3 * MIB) + b'"}\n'),
    ),
    "a ledger that is no text": (
        "package.schema",
        _changed(case_path(CASE, LEDGER), lambda data: b"\xff\n" + data),
    ),
    "an output of three bytes": ("case.output", _put(case_path(CASE, OUTPUT), b"abc")),
    "an output of NaN": ("case.output", _put(case_path(CASE, OUTPUT), b"\xff" * 128)),
    "an empty output": ("case.output", _put(case_path(CASE, OUTPUT), b"")),
    "a billion laughs": ("figure.value", _put(FIGURE, _LAUGHS)),
    "an outside entity": ("figure.value", _put(FIGURE, _OUTSIDE)),
    "a figure 10,000 deep": (
        "figure.value",
        _put(FIGURE, _SVG + b"<g>" * 10_000 + b"</g>" * 10_000 + b"</svg>"),
    ),
    "a figure of 100,000 points": (
        "figure.value",
        _put(FIGURE, _SVG + b'<circle class="case"/>' * 100_000 + b"</svg>"),
    ),
    "a figure in another encoding": (
        "figure.value",
        _put(FIGURE, b'<?xml version="1.0" encoding="utf-99"?><svg/>'),
    ),
    "a figure that is no XML": ("figure.value", _put(FIGURE, b"\0" * 1000)),
    "a report that is no UTF-8": ("report.value", _put(REPORT, b"\xff\xfe" * 100)),
    "a report of line feeds": ("report.value", _put(REPORT, b"\n" * (4 * MIB))),
    "a report of headings": ("report.value", _put(REPORT, b"## Numbers\n" * 5_000)),
}
