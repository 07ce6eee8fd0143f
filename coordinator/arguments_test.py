"""Every command line gives options, a text to print, or one ConfigError with all its problems."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.arguments import SUBCOMMANDS, call_directory, help_text, parse_arguments
from coordinator.options import (
    CallContext,
    HelpRequest,
    LedgerOptions,
    ReplayOptions,
    RunOptions,
    VersionRequest,
)
from errors import ConfigError
from manifest.run_manifest import FaultSpec, from_flags

HERE = CallContext(Path("/call"))
TEST_ENTRY = CallContext(Path("/call"), faults=True)
FAULT = ["--fault", "delay", "--fault-rank", "1", "--fault-phase", "mlp"]
WORDS = ["run", "ledger", "replay", "out", "--ranks", "--ranks=2", "--json", "--out", "--rank", "2"]
WORDS += ["--role", "worker", "--fault", "--", "-", "-x", "--kind", "FENCE", "", "\ud800", "9" * 99]


def refused(argv: list[str], context: CallContext = HERE) -> ConfigError:
    with pytest.raises(ConfigError) as failure:
        parse_arguments(argv, context)
    assert failure.value.exit_code == 2
    return failure.value


@pytest.mark.parametrize("argv", [[], ["run"]])
def test_the_default_run(argv: list[str]) -> None:
    assert parse_arguments(argv, HERE) == RunOptions(from_flags({}), Path("/call/out"), False)


@pytest.mark.parametrize("prefix", [[], ["run"]])
def test_run_with_every_flag(prefix: list[str]) -> None:
    argv = "--ranks 2 --batch 1 --sequence 4 --seed 3 --sum-order pairwise --epoch 5 --json"
    argv += " --transport unix --listen unix:s --external-workers --out /results"
    argv += " --handshake-ms 1 --load-ms 2 --phase-ms 3 --send-ms 4 --close-ms 5"
    options = parse_arguments([*prefix, *argv.split()], HERE)
    flags = {"ranks": "2", "batch": "1", "sequence": "4", "seed": "3", "sum_order": "pairwise"}
    flags |= {"epoch": "5", "listen": "unix:/call/s", "external_workers": "true"}
    waits = ("handshake", "load", "phase", "send", "close")
    flags |= {f"deadlines.{wait}_ms": str(index) for index, wait in enumerate(waits, 1)}
    assert options == RunOptions(from_flags(flags), Path("/results"), True)


def test_a_manifest_file_and_flags(tmp_path: Path) -> None:
    (tmp_path / "run.textproto").write_text("ranks: 2 seed: 9\n")
    argv = ["--manifest", "run.textproto", "--batch", "1"]
    options = parse_arguments(argv, CallContext(tmp_path))
    assert isinstance(options, RunOptions)
    assert options.manifest == from_flags({"ranks": "2", "seed": "9", "batch": "1"})
    contradiction = refused([*argv, "--seed", "1"], CallContext(tmp_path))
    assert contradiction.code == "config.contradiction"


@pytest.mark.parametrize("name", ["missing", ".", "/dev/zero", "large"])
def test_a_manifest_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "large").write_bytes(b" " * 100_000)
    problems = refused(["--manifest", name], CallContext(tmp_path)).problems
    assert len(problems) == 1


def test_run_is_for_the_block(tmp_path: Path) -> None:
    text = "program: 'qwen35/sharded' ranks: 2 model { checkpoint: '/m' }"
    (tmp_path / "m").write_text(text)
    problems = refused(["--manifest", "m"], CallContext(tmp_path)).problems
    assert [problem.field for problem in problems] == ["program"]


def test_faults_belong_to_the_test_entry() -> None:
    assert [problem.field for problem in refused(FAULT).problems] == ["fault"]
    options = parse_arguments(FAULT, TEST_ENTRY)
    assert isinstance(options, RunOptions)
    assert options.manifest.fault == FaultSpec("delay", 1, "mlp")


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        (["rnu"], ["subcommand"]),
        (["run", "fast"], ["argument"]),
        (["run", "--rank", "2"], ["option"]),
        (["--rank=2", "--slow"], ["option", "option"]),
        (["--ranks"], ["--ranks"]),
        (["--ranks", "--json"], ["--ranks"]),
        (["--ranks", "2", "--ranks", "2"], ["--ranks"]),
        (["--json", "--json"], ["--json"]),
        (["--json=yes"], ["--json"]),
        (["--out", ""], ["--out"]),
        (["--seq", "2"], ["option"]),
        (["--ranks", "3", "--seed", "-1", "--fast"], ["option", "seed", "ranks"]),
        (["--version", "--json"], ["option"]),
        (["ledger"], ["DIR"]),
        (["ledger", "a", "b"], ["argument"]),
        (["ledger", "--rank", "x", "--kind", "FRAME"], ["DIR", "--rank", "--kind"]),
        (["ledger", "a", "--rank", "16"], ["--rank"]),
        (["ledger", "a", "--direction", "up"], ["--direction"]),
        (["replay"], ["DIR", "--role"]),
        (["replay", "a", "--role", "rank"], ["--role"]),
        (["replay", "a", "--role", "worker", "--rank", "1.5"], ["--rank"]),
    ],
)
def test_refused_command_lines(argv: list[str], fields: list[str]) -> None:
    assert [problem.field for problem in refused(argv).problems] == fields


def test_ledger_and_replay() -> None:
    argv = "ledger out --rank 0 --kind PARTIAL --phase mlp --tensor mlp.partial --direction receive"
    shown = LedgerOptions(Path("/call/out"), 0, "PARTIAL", "mlp", "mlp.partial", "receive")
    assert parse_arguments(argv.split(), HERE) == shown
    argv = "replay /out --role worker --rank 3"
    assert parse_arguments(argv.split(), HERE) == ReplayOptions(Path("/out"), "worker", 3)
    argv = "replay out --role coordinator"
    assert parse_arguments(argv.split(), HERE) == ReplayOptions(Path("/call/out"), "coordinator")


def test_version() -> None:
    assert parse_arguments(["--version"], HERE) == VersionRequest()


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_for_the_terminal_and_names_everything(flag: str) -> None:
    assert parse_arguments([flag], HERE) == HelpRequest(help_text())
    for name in SUBCOMMANDS:
        assert f"\n  {name} " in help_text()
        request = parse_arguments([name, flag], HERE)
        assert isinstance(request, HelpRequest)
        assert "examples:" in request.text
        assert all(len(line) <= 100 for line in request.text.splitlines())


def test_help_shows_faults_only_where_they_work() -> None:
    plain = parse_arguments(["run", "--help"], HERE)
    testing = parse_arguments(["run", "--help"], TEST_ENTRY)
    assert isinstance(plain, HelpRequest)
    assert isinstance(testing, HelpRequest)
    assert "--fault-rank" not in plain.text
    assert "--fault-rank" in testing.text


def test_the_directory_of_the_call() -> None:
    runfiles = Path("/runfiles")
    assert call_directory({"BUILD_WORKING_DIRECTORY": "/call"}, runfiles) == Path("/call")
    assert call_directory({}, runfiles) == runfiles


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=9)), max_size=8))
def test_any_arguments_give_options_or_a_config_error(argv: list[str]) -> None:
    with contextlib.suppress(ConfigError):
        assert parse_arguments(argv, HERE) is not None
