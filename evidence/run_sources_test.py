"""The sources that the evidence is bound to: exactly those that produce a run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from evidence.import_closure import import_closure
from evidence.run_sources import RUN_SOURCES, parse_sources

PROTO = "manifest/run_manifest.proto"


def _text(path: str) -> str | None:
    return Path(path).read_text("utf-8") if Path(path).is_file() else None


def test_what_the_build_lists_is_what_is_imported() -> None:
    """E4: a stranger who follows the import statements comes to the same list."""
    wanted = import_closure("evidence/runner.py", _text).keys() | {PROTO}
    assert set(RUN_SOURCES) == wanted


def test_a_change_of_a_source_is_a_change_of_the_list() -> None:
    """The digests are those of the files that this test was built from."""
    for path in RUN_SOURCES.keys() - {PROTO}:
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == RUN_SOURCES[path]


def test_what_runs_a_case_is_in_the_list() -> None:
    assert {
        "coordinator/group.py",
        "coordinator/reduce.py",
        "evidence/fork_launcher.py",
        "model/block.py",
        "oracle/block.py",
        "program/block.py",
        "simulation/faults.py",
        "wire/session.py",
        "worker/main.py",
        PROTO,
    } <= RUN_SOURCES.keys()


def test_what_runs_no_case_is_not_in_the_list() -> None:
    """So a change of the scheduler, or of the figure, leaves the runs valid."""
    assert (
        not {
            "coordinator/scheduler.py",
            "coordinator/main.py",
            "evidence/figure.py",
            "evidence/main.py",
            "simulation/pipe.py",
        }
        & RUN_SOURCES.keys()
    )
    assert not [path for path in RUN_SOURCES if path.endswith("_test.py")]


def test_the_list_is_in_path_order() -> None:
    assert list(RUN_SOURCES) == sorted(RUN_SOURCES)


def test_lines_are_those_of_sha256sum() -> None:
    assert dict(parse_sources("12  a/b.py\n34  c d.py\n")) == {"a/b.py": "12", "c d.py": "34"}
