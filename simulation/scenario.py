"""Conversations told as commands and the trace they leave (testdata/scenarios): runs the commands.

    group ranks=2 batch=1 sequence=2 seed=1 order=rank epoch=1 deliver=whole
    fault rank=1 kind=delay phase=mlp epoch=1
    mischief rank=1 kind=repeats frame=PARTIAL number=1
    open                     greet the ranks, agree, send the weights
    step                     one step on the seeded operand
    close                    end the sessions
    ranks                    what became of the workers, and of the time

`group` begins anew: what was said before is forgotten. deliver: `whole`, `bytes`, `cuts:SEED`.

    scenario FILE ...            say where a trace is another one now
    scenario --rewrite FILE ...  write the new traces

Exit codes: 0 all as told, 1 another trace, 2 usage.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from errors import ConfigError, PeerError, PoisonedError
from manifest.run_manifest import from_flags
from simulation.block_simulation import BlockSimulation, Cuts, whole_cuts
from simulation.delivery import byte_by_byte, seeded_cuts
from simulation.faults import Fault, FaultKind
from simulation.mischief import MISCHIEFS, rewriting
from simulation.pipe import Rewrite
from simulation.scenario_text import Block, Command, parse_command, parse_scenario, spell_scenario
from simulation.trace import trace_lines
from wire.frame import Kind

DIFFERENT: Final = 1
_DIGEST_DIGITS: Final = 16
# From a scenario's word to the manifest's.
_FLAGS: Final = {
    "ranks": "ranks",
    "batch": "batch",
    "sequence": "sequence",
    "seed": "seed",
    "order": "sum_order",
    "epoch": "epoch",
    "phase_ms": "deadlines.phase_ms",
}


@dataclass
class _Stage:
    """One group as far as it was told."""

    flags: dict[str, str] = field(default_factory=dict)
    cuts: Cuts = whole_cuts
    faults: dict[int, Fault] = field(default_factory=dict)
    rewrites: dict[int, Rewrite] = field(default_factory=dict)
    simulation: BlockSimulation | None = None
    told: int = 0

    def running(self) -> BlockSimulation:
        if self.simulation is None:
            raise ConfigError.single("command", "before open", "needs an open group")
        return self.simulation


def run_scenario(blocks: Iterable[Block]) -> list[Block]:
    """The same commands with the traces that they leave now. Raises ConfigError."""
    stage, played = _Stage(), []
    for block in blocks:
        trace: list[str] = []
        for line in block.commands:
            if line.startswith("#"):
                continue
            name = line.split()[0]
            if name not in _COMMANDS:
                raise ConfigError.single("command", line, f"must be one of {', '.join(_COMMANDS)}")
            keys, act = _COMMANDS[name]
            if name == "group":
                stage = _Stage()
            trace += act(stage, parse_command(line, keys))
        played.append(Block(block.commands, tuple(trace)))
    return played


def _group(stage: _Stage, command: Command) -> Iterator[str]:
    settings = dict(command.settings)
    kind, _, seed = settings.pop("deliver", "whole").partition(":")
    if kind not in ("whole", "bytes", "cuts"):
        raise ConfigError.single("deliver", kind, "must be whole, bytes or cuts:SEED")
    if kind == "bytes":
        stage.cuts = lambda: byte_by_byte
    elif kind == "cuts":
        stage.cuts = lambda: seeded_cuts(int(seed))
    stage.flags = {_FLAGS[key]: value for key, value in settings.items()}
    return iter(())


def _fault(stage: _Stage, command: Command) -> Iterator[str]:
    settings = command.settings
    epoch = int(settings["epoch"]) if "epoch" in settings else None
    kind, ranks = FaultKind(settings["kind"]), int(stage.flags["ranks"])
    stage.faults[int(settings["rank"])] = Fault(kind, settings["phase"], ranks, epoch)
    return iter(())


def _mischief(stage: _Stage, command: Command) -> Iterator[str]:
    settings = command.settings
    if settings["kind"] not in MISCHIEFS:
        rule = f"must be one of {', '.join(MISCHIEFS)}"
        raise ConfigError.single("mischief", settings["kind"], rule)
    frame, number = Kind[settings["frame"]], int(settings.get("number", "1"))
    stage.rewrites[int(settings["rank"])] = rewriting(settings["kind"], frame, number)
    return iter(())


def _open(stage: _Stage, command: Command) -> Iterator[str]:
    manifest = from_flags(stage.flags)
    stage.simulation = BlockSimulation(manifest, stage.faults, stage.cuts, stage.rewrites)
    simulation = stage.simulation

    def act() -> str:
        simulation.open()
        return "open"

    return _told(stage, act)


def _step(stage: _Stage, command: Command) -> Iterator[str]:
    simulation = stage.running()

    def act() -> str:
        output = simulation.step()
        digest = hashlib.sha256(output).hexdigest()[:_DIGEST_DIGITS]
        return f"output of {len(output)} bytes, SHA-256 {digest}"

    return _told(stage, act)


def _told(stage: _Stage, act: Callable[[], str]) -> Iterator[str]:
    """The frames of an action, and how it ended."""
    try:
        end = act()
    except PeerError as failure:
        end = f"failed with {failure.code}, rank {failure.rank}, phase {failure.phase}"
    except PoisonedError as failure:
        end = f"refused with {failure.code}: {failure.cause.code} of rank {failure.cause.rank}"
    entries = stage.running().recorder.entries()
    yield from trace_lines(entries[stage.told :])
    stage.told = len(entries)
    yield end


def _close(stage: _Stage, command: Command) -> Iterator[str]:
    stage.running().close()
    return iter(("closed",))


def _ranks(stage: _Stage, command: Command) -> Iterator[str]:
    simulation = stage.running()
    for rank, worker in enumerate(simulation.workers):
        if worker.output.silent:
            yield f"rank {rank} was silent to the end"
        elif worker.failure is not None:
            yield f"rank {rank} ended with {worker.failure.code}"
        else:
            yield f"rank {rank} {'ended' if worker.ended else 'waits'}"
    yield f"clock {1000 * simulation.clock.now():.0f} ms"


_Act = Callable[[_Stage, Command], Iterator[str]]
_COMMANDS: Final[dict[str, tuple[frozenset[str], _Act]]] = {
    "group": (frozenset({*_FLAGS, "deliver"}), _group),
    "fault": (frozenset({"rank", "kind", "phase", "epoch"}), _fault),
    "mischief": (frozenset({"rank", "kind", "frame", "number"}), _mischief),
    "open": (frozenset(), _open),
    "step": (frozenset(), _step),
    "close": (frozenset(), _close),
    "ranks": (frozenset(), _ranks),
}


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="scenario", allow_abbrev=False)
    parser.add_argument("--rewrite", action="store_true", help="write the new traces")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    base, status = Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")), 0
    for path in options.files:
        told = (base / path).read_text("ascii")
        played = spell_scenario(run_scenario(parse_scenario(told)))
        if options.rewrite:
            (base / path).write_text(played, "ascii")
        elif played != told:
            print(f"{path}: another trace", file=sys.stderr)
            status = DIFFERENT
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
