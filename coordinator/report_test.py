from __future__ import annotations

import json
import re
from dataclasses import replace
from errno import ECONNRESET

import pytest

from coordinator.report import render_json, render_refusal_json, render_report
from coordinator.summary import Failure, OracleErrors, RunSummary, Traffic, WorkerSummary
from coordinator.terminal import WIDTH, Style, columns, printable, style_for
from errors import ConfigError, DeadlineError, PoisonedError, ProtocolError
from manifest.run_manifest import from_flags

PLAIN = Style()
COLOUR = Style(colour=True)

REQUIRED_KEYS = {
    "ok",
    "ranks",
    "batch",
    "sequence",
    "seed",
    "sum_order",
    "payload_bytes",
    "payload_bytes_expected",
    "header_bytes",
    "metadata_bytes",
    "max_abs_error",
    "relative_l2_error",
    "output_sha256",
    "workers",
    "error",
}


def good_run() -> RunSummary:
    workers = [
        WorkerSummary(rank, f"pid {4000 + rank}", Traffic(6, 1_500), Traffic(13, 6_500), 0)
        for rank in range(4)
    ]
    return RunSummary(
        manifest=from_flags({}),
        payload_bytes=29_184,
        payload_bytes_expected=29_184,
        header_bytes=2_736,
        metadata_bytes=5_004,
        workers=tuple(workers),
        elapsed_seconds=0.5123,
        oracle=OracleErrors(1.25e-7, 9.5e-8),
        outputs_identical=True,
        output_sha256="ab" * 32,
        out_dir="/call/out",
        files=("manifest.json", "output.f32"),
    )


def failed_run() -> RunSummary:
    error = ProtocolError(
        "truncated", "the stream ended inside a frame", rank=2, phase="mlp", errno=ECONNRESET
    )
    silent = WorkerSummary(3, None)
    broken = WorkerSummary(2, "pid 9", Traffic(3, 9), Traffic(9, 9), 1, "a\x1b[31m\nb: no\n")
    return replace(
        good_run(),
        workers=(*good_run().workers[:2], broken, silent),
        payload_bytes=100,
        oracle=None,
        outputs_identical=None,
        output_sha256=None,
        failure=Failure.of(error),
    )


def test_json_of_a_good_run() -> None:
    document = json.loads(render_json(good_run()))
    assert document.keys() >= REQUIRED_KEYS
    assert document["ok"] is True
    assert document["error"] is None
    assert document["max_abs_error"] == 1.25e-7
    assert document["workers"][3] == {"rank": 3, "frames_sent": 6, "frames_received": 13}
    assert document["payload_bytes"] == document["payload_bytes_expected"] == 29_184


def test_json_of_a_failed_run_has_the_same_keys() -> None:
    document = json.loads(render_json(failed_run()))
    assert document.keys() == json.loads(render_json(good_run())).keys()
    assert document["ok"] is False
    assert document["error"] == {
        "code": "protocol.truncated",
        "rank": 2,
        "phase": "mlp",
        "errno": ECONNRESET,
        "errno_name": "ECONNRESET",
    }
    assert document["output_sha256"] is None


def test_json_is_one_line_and_strict_even_without_a_finite_error() -> None:
    text = render_json(replace(good_run(), oracle=OracleErrors(float("nan"), float("inf"))))
    assert text.count("\n") == 1
    assert json.loads(text)["max_abs_error"] is None


def test_json_of_a_refusal() -> None:
    document = json.loads(render_refusal_json(ConfigError.single("ranks", 3, "no")))
    assert document["ok"] is False
    keys = ("rank", "phase", "errno", "errno_name")
    assert document["error"] == {"code": "config.invalid", **dict.fromkeys(keys)}


def test_a_poisoned_group_reports_its_cause() -> None:
    cause = DeadlineError("receive", "nothing came", rank=1, phase="attention")
    assert Failure.of(PoisonedError(cause)) == Failure.of(cause)
    assert Failure.of(cause).rank == 1


@pytest.mark.parametrize("summary", [good_run(), failed_run()])
def test_the_page_fits_and_holds_what_was_asked(summary: RunSummary) -> None:
    page = render_report(summary, PLAIN)
    assert all(len(line) <= WIDTH for line in page.splitlines())
    assert "\x1b" not in page
    assert page.endswith("\n")
    for worker in summary.workers:
        row = [line for line in page.splitlines() if line.startswith(f"{worker.rank:>4}  ")]
        assert len(row) == 1
        assert str(worker.sent.frames) in row[0]


def test_the_page_of_a_good_run() -> None:
    page = render_report(good_run(), PLAIN)
    for fact in ("29,184", "1.250e-07", "9.500e-08", "ab" * 32, "/call/out", "2,736", "0.512 s"):
        assert fact in page


def test_the_page_of_a_failed_run_names_code_rank_phase_and_last_words() -> None:
    page = render_report(failed_run(), PLAIN)
    for fact in (
        "protocol.truncated",
        "rank 2 in phase mlp",
        "ECONNRESET",
        "b: no",
        "did not connect",
    ):
        assert fact in page


def test_a_wrong_payload_is_no_agreement() -> None:
    right = render_report(good_run(), PLAIN)
    wrong = render_report(replace(good_run(), payload_bytes=29_188), PLAIN)
    assert right.replace("29,184", "") != wrong.replace("29,188", "").replace("29,184", "")


def test_colour_adds_escapes_and_nothing_else() -> None:
    painted = render_report(good_run(), COLOUR)
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == render_report(good_run(), PLAIN)


@pytest.mark.parametrize(
    ("terminal", "environment", "colour"),
    [
        (True, {"TERM": "xterm"}, True),
        (False, {"TERM": "xterm"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (True, {}, False),
    ],
)
def test_when_there_is_colour(terminal: bool, environment: dict[str, str], colour: bool) -> None:
    assert style_for(terminal, environment).colour is colour


def test_columns_are_aligned() -> None:
    assert columns([("a", "bb"), ("ccc", "d")], "><") == ["  a  bb", "ccc  d"]


def test_text_from_outside_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2J\r\nb\u202e") == "a\\x1b[2J\\r\nb\\u202e"
