"""What has the right form is kept, what has not is noted, and nothing raises."""

from __future__ import annotations

import json

import pytest

from evidence.made_up import made_up_records
from evidence.package import CASES, MANIFEST, SUMMARY
from evidence.summary import summarize
from verifier.package.documents import VALUES_MAX, decode_object, read_documents, split_lines
from verifier.package.files import Memory, PackageFiles


def line(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def documents(**files: bytes) -> tuple[list[str], int, bool]:
    """Problems, usable records, and whether the summary is usable, of a package of these files."""
    names = {"cases": CASES, "manifest": MANIFEST, "summary": SUMMARY}
    read = read_documents(PackageFiles(Memory({names[key]: data for key, data in files.items()})))
    return read.problems, len(read.records), read.summary is not None


SUMMARY_LINE = line(summarize(made_up_records(), 1, 2))
CASE_LINES = b"".join(line(record) for record in made_up_records())


def test_what_is_right_is_kept() -> None:
    problems, records, summary = documents(cases=CASE_LINES, summary=SUMMARY_LINE)
    assert [problem for problem in problems if not problem.startswith(MANIFEST)] == []
    assert (records, summary) == (288, True)


def test_one_bad_line_costs_one_record() -> None:
    problems, records, _ = documents(cases=b"{}\n[]\n" + CASE_LINES, summary=SUMMARY_LINE)
    assert records == 288
    assert any("line 2" in problem for problem in problems)


def test_nothing_at_all() -> None:
    problems, records, summary = documents()
    assert (len(problems), records, summary) == (3, 0, False)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'{"a":1.0}',
        b'{"a":1,"a":1}',
        b'{"b":1,"a":1}',
        b'{"a": 1}',
        b'{"a":NaN}',
        b"\xff",
        b"[" * 100_000,
        b'{"a":[' + b"0," * VALUES_MAX + b"0]}",
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_no_canonical_object(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_object(data)


def test_lines() -> None:
    assert split_lines(b"", 1) == []
    assert split_lines(b"a\nb\n", 2) == [b"a", b"b"]
    for data in (b"a", b"a\nb", b"a\nb\nc\n"):
        with pytest.raises(ValueError, match=r"."):
            split_lines(data, 2)
