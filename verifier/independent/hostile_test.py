"""Packages made to hurt: each gives findings with a code, within bounds, and no traceback."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import frames
import pytest
import sample_edits
import sample_package as sample
import verify
from sample_package import CLEAN, Files

MATRIX = sample.small_matrix()
MIB = 2**20
TAPE = f"cases/{CLEAN}/tape.bin"
LEDGER = f"cases/{CLEAN}/ledger.jsonl"
OUTPUT = f"cases/{CLEAN}/output.f32"


@lru_cache(maxsize=1)
def valid() -> Files:
    return sample.build(MATRIX)


def found(root: Path) -> set[str]:
    return {finding.code for finding in verify.verify(root, matrix=MATRIX).findings}


# Path of the file, its content, and a code among the findings.
CONTENTS: dict[str, tuple[str, bytes, str]] = {
    "empty manifest": ("manifest.json", b"", "package.schema"),
    "empty cases": ("cases.jsonl", b"", "matrix.coverage"),
    "empty summary": ("summary.json", b"", "summary.value"),
    "empty report": ("report.md", b"", "report.value"),
    "empty figure": ("figure.svg", b"", "figure.value"),
    "empty tape": (TAPE, b"", "case.tape"),
    "empty ledger": (LEDGER, b"", "case.ledger"),
    "empty output": (OUTPUT, b"", "case.output"),
    "deep JSON": ("manifest.json", b"[" * MIB + b"]" * MIB + b"\n", "package.schema"),
    "wide JSON": ("summary.json", b'{"a":[' + b"{}," * MIB + b"{}]}\n", "package.schema"),
    "long number": ("summary.json", b'{"a":' + b"9" * MIB + b"}\n", "package.schema"),
    "NaN": ("summary.json", b'{"a":NaN}\n', "package.schema"),
    "infinity": ("summary.json", b'{"a":1e999}\n', "package.schema"),
    "array": ("summary.json", b"[]\n", "package.schema"),
    "duplicate keys": ("summary.json", b'{"a":1,"a":2}\n', "package.schema"),
    "not ASCII": ("summary.json", '{"a":"é"}\n'.encode(), "package.schema"),
    "byte order mark": ("summary.json", b"\xef\xbb\xbf{}\n", "package.schema"),
    "lone surrogate": ("summary.json", b'{"a":"\\ud800"}\n', "package.schema"),
    "escape bomb": ("summary.json", b'{"a":"' + b'\\"' * MIB + b"\n", "package.schema"),
    "many lines": ("cases.jsonl", b"{}\n" * MIB, "package.schema"),
    "many empty lines": (LEDGER, b"\n" * (4 * MIB), "case.ledger"),
    "records of wrong types": (
        "cases.jsonl",
        b'{"case":[1],"fault":{"kind":7}}\n{"case":{"a":null}}\n{"case":true}\n',
        "package.schema",
    ),
    "many records in a tape": (
        TAPE,
        frames.TAPE_MAGIC + frames.RECORD.pack(1, 9, 0) * 500_000,
        "case.tape",
    ),
    "a hostile length in a tape": (
        TAPE,
        frames.TAPE_MAGIC + frames.RECORD.pack(1, 0, 2**32 - 1) + b"x" * MIB,
        "case.tape",
    ),
    "a hostile length in a frame": (
        TAPE,
        frames.TAPE_MAGIC
        + frames.RECORD.pack(1, 0, 36)
        + frames.HEADER.pack(frames.MAGIC, 1, 7, 0, 1, 0, 2**32 - 1, 2**32 - 1, 0),
        "case.tape",
    ),
    "ranks that are not there": (
        TAPE,
        frames.TAPE_MAGIC
        + b"".join(frames.RECORD.pack(at % 2, 65_535 - at, 0) for at in range(1_000)),
        "case.session",
    ),
    "output of NaN": (OUTPUT, b"\xff" * 128, "case.output"),
    "output too long": (OUTPUT, b"\0" * MIB, "case.output"),
    "report that is not UTF-8": ("report.md", b"\xff\xfe" * 99, "report.value"),
    "report of line feeds": ("report.md", b"\n" * (4 * MIB), "report.value"),
    "entity bomb": (
        "figure.svg",
        b'<!DOCTYPE svg [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><svg>&b;</svg>',
        "figure.value",
    ),
    "outside entity": (
        "figure.svg",
        b'<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/hostname">]><svg>&a;</svg>',
        "figure.value",
    ),
    "deep XML": ("figure.svg", b"<g>" * MIB, "figure.value"),
    "many elements": ("figure.svg", b"<svg>" + b'<a class="case"/>' * 200_000, "figure.value"),
    "unknown encoding": ("figure.svg", b'<?xml version="1.0" encoding="x"?><svg/>', "figure.value"),
    "UTF-16": ("figure.svg", "<svg/>".encode("utf-16"), "figure.value"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if place % 8 == 0 else pytest.mark.exhaustive)
        for place, name in enumerate(CONTENTS)
    ],
)
def test_content(name: str, tmp_path: Path) -> None:
    path, data, code = CONTENTS[name]
    root = sample.write(dict(valid()) | {path: data}, tmp_path)
    assert code in found(root)


def too_large(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(4 * MIB + 1)


def link(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "path",
    [
        "manifest.json",
        *(
            pytest.param(path, marks=pytest.mark.exhaustive)
            for path in ("cases.jsonl", "figure.svg", TAPE, LEDGER)
        ),
        OUTPUT,
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        too_large,
        link,
        *(
            pytest.param(change, marks=pytest.mark.exhaustive)
            for change in (dangling, fifo, directory, Path.unlink)
        ),
    ],
)
def test_no_regular_file(path: str, change: Callable[[Path], None], tmp_path: Path) -> None:
    root = sample.write(valid(), tmp_path)
    change(root / path)
    assert "package.files" in found(root)


def test_a_linked_folder_is_not_followed(tmp_path: Path) -> None:
    root = sample.write(valid(), tmp_path / "package")
    (root / "cases" / CLEAN).rename(tmp_path / "away")
    (root / "cases" / CLEAN).symlink_to(tmp_path / "away")
    assert "package.files" in found(root)


@pytest.mark.parametrize("folder", ["cases/more", "more", f"cases/{CLEAN}/more"])
def test_an_empty_folder_is_extra(folder: str, tmp_path: Path) -> None:
    root = sample.write(valid(), tmp_path)
    (root / folder).mkdir()
    assert found(root) == {"package.files"}


def test_too_many_files(tmp_path: Path) -> None:
    root = sample.write(valid(), tmp_path)
    for number in range(2_100):
        (root / f"x{number}").touch()
    assert "package.files" in found(root)


def test_too_many_folders(tmp_path: Path) -> None:
    root = sample.write(valid(), tmp_path)
    for number in range(4_100):
        (root / "cases" / f"x{number}").mkdir()
    assert "package.files" in found(root)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    root = sample.write(valid(), tmp_path)
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\x1b[31m\n")).touch()
    verdict = verify.verify(root, matrix=MATRIX)
    assert {finding.code for finding in verdict.findings} == {"package.files"}
    assert all(finding.message.isprintable() for finding in verdict.findings)


@pytest.mark.parametrize(
    "path",
    [
        "../outside",
        "/etc/hostname",
        *(
            pytest.param(path, marks=pytest.mark.exhaustive)
            for path in ("a//b", "./a", "cases/../../x", "a\\b", "", "a\0b")
        ),
    ],
)
@pytest.mark.parametrize("where", ["files", "source"])
def test_paths_that_lead_out(path: str, where: str, tmp_path: Path) -> None:
    files = dict(valid())
    digest = "0" * 64

    def edit(manifest: sample.Json) -> None:
        if where == "files":
            manifest["files"][path] = {"bytes": 1, "sha256": digest}
        else:
            manifest["source"]["files"][path] = digest

    sample_edits.edit_json(files, "manifest.json", edit)
    root = sample.write(files, tmp_path / "package")
    verdict = verify.verify(root, matrix=MATRIX, source=tmp_path)
    assert f"package.{where}" in {finding.code for finding in verdict.findings}


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Every file as large as allowed and hostile in its own way, in 512 MiB of address space."""
    files = dict(valid())
    for path in files:
        files[path] = b'{"a":[' + b"[]," * MIB + b"[]]}\n"
    files["figure.svg"] = b"<svg>" + b'<a class="case"/>' * 200_000
    files["cases.jsonl"] = (b'{"case":[' + b"0," * 1_000 + b"0]}\n") * 1_900
    root = sample.write(files, tmp_path)
    limit = 512 * MIB
    result = subprocess.run(
        [sys.executable, "-I", "-S", str(Path(verify.__file__).parent), "--evidence", str(root)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert (result.returncode, result.stderr) == (1, "")
