"""The command lines of serve and state."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.arguments import parse_arguments
from coordinator.options import CallContext
from coordinator.service_options import ServeOptions, StateOptions
from errors import ConfigError
from wire.address import Address

CONTEXT = CallContext(Path("/call"), model=Path("/model"))


def fields(argv: list[str], context: CallContext = CONTEXT) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_arguments(argv, context)
    assert refused.value.exit_code == 2
    return sorted(problem.field for problem in refused.value.problems)


def test_serve_by_default() -> None:
    options = parse_arguments(["serve", "--control", "unix:s"], CONTEXT)
    assert isinstance(options, ServeOptions)
    assert options.control == Address(path="/call/s")
    assert (options.waiting_max, options.heartbeat_ms, options.drain_ms) == (256, 60_000, 10_000)
    assert options.http is None
    assert (options.manifest.program, options.manifest.ranks) == ("qwen35/sharded", 2)
    assert options.manifest.model is not None
    assert options.manifest.model.max_batch == 8


def test_serve_with_every_flag_of_its_own() -> None:
    argv = "serve --control unix:/s --max-waiting 3 --heartbeat-ms 4 --drain-ms 0 --max-batch 5"
    options = parse_arguments([*argv.split(), "--tp", "4", "--program", "replicated"], CONTEXT)
    assert isinstance(options, ServeOptions)
    assert options.control == Address(path="/s")
    assert (options.waiting_max, options.heartbeat_ms, options.drain_ms) == (3, 4, 0)
    assert (options.manifest.program, options.manifest.ranks) == ("qwen35/replicated", 4)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--control 127.0.0.1:1", ["--control"]),
        ("--control tcp:127.0.0.1:1", ["--control"]),
        ("--control s", ["--control"]),
        ("--control unix:" + "x" * 200, ["--control"]),
        ("--control unix:s --max-waiting 0", ["--max-waiting"]),
        ("--control unix:s --max-waiting 65537", ["--max-waiting"]),
        ("--control unix:s --heartbeat-ms 0", ["--heartbeat-ms"]),
        ("--control unix:s --heartbeat-ms 300001", ["--heartbeat-ms"]),
        ("--control unix:s --drain-ms -1", ["--drain-ms"]),
        ("--control unix:s --drain-ms 1.5 --max-waiting x", ["--drain-ms", "--max-waiting"]),
        ("--control unix:s --prot 8000", ["option"]),
        ("--control unix:s --tp 0", ["ranks"]),
    ],
)
def test_serve_refuses(argv: str, expected: list[str]) -> None:
    assert fields(["serve", *argv.split()]) == expected


def test_a_build_without_a_model_needs_one() -> None:
    argv = ["serve", "--control", "unix:s"]
    assert fields(argv, CallContext(Path("/call"))) == ["--checkpoint"]


def test_state() -> None:
    options = parse_arguments(["state", "--control", "unix:s", "--json"], CONTEXT)
    assert options == StateOptions(Address(path="/call/s"), 5_000, True)
    options = parse_arguments(["state", "--control", "unix:/s", "--timeout-ms", "9"], CONTEXT)
    assert options == StateOptions(Address(path="/s"), 9, False)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("", ["--control"]),
        ("--control tcp:127.0.0.1:1 --timeout-ms 0", ["--control", "--timeout-ms"]),
        ("--control unix:s --timeout-ms 600001", ["--timeout-ms"]),
        ("--control unix:s --checkpoint x", ["option"]),
    ],
)
def test_state_refuses(argv: str, expected: list[str]) -> None:
    assert fields(["state", *argv.split()]) == expected
