"""The command line's frame: exit codes, one JSON object, standard output that fails."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import pytest

from coordinator import main as subject
from coordinator import start
from coordinator.main import main
from coordinator.options import Options
from errors import DeadlineError, TPError

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _called_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)


def test_version_and_help(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    name, digest = capsys.readouterr().out.split()
    assert (name, len(digest)) == ("coordinator", 64)
    assert main(["--help"]) == 0
    assert "examples:" in capsys.readouterr().out


def test_a_run_does_not_wait_for_a_web_server() -> None:
    """Only `serve` over HTTP imports one."""
    program = "import sys, coordinator.main; sys.exit('uvicorn' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert done.returncode == 0


REFUSED = {
    "unknown subcommand": ["walk"],
    "unknown option": ["run", "--rank", "2"],
    "ranks that do not divide": ["--ranks", "3"],
    "not loopback": ["--listen", "0.0.0.0:7400"],
    "socket path too long": ["--listen", "unix:" + "p" * 200],
    "port out of range": ["--listen", "127.0.0.1:70000"],
    "external workers without an address": ["--external-workers"],
    "manifest that is not there": ["--manifest", "missing"],
    "identity of other sources": ["--manifest", "other"],
    "out is a file": ["--out", "file"],
    "out is below a file": ["--out", "file/below"],
    "out cannot be made": ["--out", "/proc/rankproof/out"],
    "out cannot be written": ["--out", "/proc/self/task"],
    "no recording": ["ledger", "missing"],
    "no recording to replay": ["replay", "missing", "--role", "worker"],
}


@pytest.mark.parametrize("argv", REFUSED.values(), ids=REFUSED)
def test_refused_before_anything_is_started(
    argv: list[str], capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "other").write_text('source_identity: "' + "f" * 64 + '"\n')
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("coordinator: config.")
    assert captured.err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("argv", [REFUSED["ranks that do not divide"], REFUSED["out is a file"]])
def test_a_refusal_as_json(argv: list[str], capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert main([*argv, "--json"]) == 2
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert captured.out.count("\n") == 1
    assert document == {
        "ok": False,
        "workers": [],
        "error": {
            "code": "config.invalid",
            "rank": None,
            "phase": None,
            "errno": None,
            "errno_name": None,
        },
    }
    assert captured.err.startswith("coordinator: config.invalid: ")


def dispatching(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    def dispatch(options: Options, environment: Mapping[str, str], page: TextIO) -> int:
        page.write("half a page")
        raise failure

    monkeypatch.setattr(subject, "_dispatch", dispatch)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (TPError("output.write", "full"), 1),
        (TPError("process.start", "missing"), 1),
        (DeadlineError("receive", "late", rank=1, phase="mlp"), 3),
    ],
)
def test_a_failure_replaces_the_page(
    failure: TPError, code: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatching(monkeypatch, failure)
    assert main([]) == code
    assert capsys.readouterr() == ("", f"coordinator: {failure.diagnostics()}\n")
    assert main(["--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["error"]["code"]) == (False, failure.code)


def test_a_bug_of_ours_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatching(monkeypatch, ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        main([])


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupted(
    number: int, code: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dispatch(options: Options, environment: Mapping[str, str], page: TextIO) -> int:
        os.kill(os.getpid(), number)
        return 0

    handlers = {one: signal.signal(one, signal.SIG_DFL) for one in (number,)}
    monkeypatch.setattr(subject, "_dispatch", dispatch)
    assert main(["--json"]) == code
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["code"] == "run.interrupted"
    assert signal.Signals(number).name in captured.err
    assert signal.getsignal(number) is signal.SIG_DFL
    signal.signal(number, handlers[number])


@pytest.mark.parametrize(
    ("opened", "code"), [("/dev/full", 1), ("a pipe nobody reads", 141), ("both", 3)]
)
def test_standard_output_that_fails(
    opened: str, code: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence for a full disk, none for a reader that left; a failure's own code stays."""
    if opened == "a pipe nobody reads":
        reading, descriptor = os.pipe()
        os.close(reading)
    else:
        descriptor = os.open("/dev/full", os.O_WRONLY)
    if opened == "both":
        dispatching(monkeypatch, DeadlineError("receive", "late", rank=1, phase="mlp"))
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["--json"] if opened == "both" else ["--version"]) == code
        monkeypatch.undo()
    said = capsys.readouterr().err
    assert ("can't write standard output" in said) == (opened != "a pipe nobody reads")


def test_nothing_to_write_needs_no_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a full device not even no bytes are taken."""
    monkeypatch.setattr(subject, "_dispatch", lambda options, environment, page: 0)
    descriptor = os.open("/dev/full", os.O_WRONLY)
    with io.TextIOWrapper(os.fdopen(descriptor, "wb", buffering=0), write_through=True) as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main([]) == 0
        monkeypatch.undo()


def test_standard_error_that_fails(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code stays that of the refusal."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    with io.TextIOWrapper(os.fdopen(descriptor, "wb", buffering=0), write_through=True) as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert main(["--ranks", "3"]) == 2
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("closed", "argv", "code", "out", "said"),
    [
        (">&-", ["--version"], 1, "", "coordinator: can't write standard output"),
        (">&- <&-", ["--version"], 1, "", "coordinator: can't write standard output"),
        ("2>&-", ["--version"], 0, "coordinator ", ""),
        ("2>&-", ["--ranks", "3"], 2, "", ""),
        (">&- 2>&- <&-", ["--ranks", "3"], 2, "", ""),
    ],
)
def test_closed_standard_streams(
    closed: str, argv: list[str], code: int, out: str, said: str
) -> None:
    """No crash, nothing on the other stream, and results that nobody gets are a failure."""
    script = f'exec "$0" "$@" {closed}'
    program = [sys.executable, start.__file__, *argv]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run(
        ["/bin/sh", "-c", script, *program], env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == code
    assert ended.stdout.startswith(out)
    assert ended.stderr.startswith(said)
    assert (ended.stdout == "") == (out == "")
    assert (ended.stderr == "") == (said == "")


def test_a_working_directory_that_is_gone(tmp_path: Path, capsys: Capture) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert main(["--ranks", "1"]) == 2
    assert capsys.readouterr().err.startswith("coordinator: config.invalid: working directory")
    os.chdir(tmp_path)
