"""Command line of `bench ab`."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Final

from coordinator.machine import visible_machine
from coordinator.model_run import ModelBindings
from coordinator.processes import ExecLauncher
from coordinator.worker_program import worker_program
from manifest.run_manifest import RunManifest
from tools.bench.ab import AbOptions, check, compare
from tools.bench.ab_report import Findings, render, to_json
from tools.bench.ab_traffic import Traffic
from tools.bench.synthetic import Size, write_checkpoint

_SIZES: Final = {size.name.lower(): size for size in Size}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--checkpoint", metavar="DIR", help="a model of your own")
    model.add_argument(
        "--size",
        choices=sorted(_SIZES),
        default="quarter",
        help="widths of a random model of four layers, as a part of the 4B model's",
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="fresh processes each")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="per round")
    parser.add_argument("--prompt", type=int, default=32, metavar="TOKENS")
    parser.add_argument("--tokens", type=int, default=16, metavar="TOKENS", help="of each answer")
    parser.add_argument("--batch", type=int, default=4, metavar="N", help="requests at once")
    parser.add_argument("--long", type=int, default=256, metavar="TOKENS", help="the long prompt")
    parser.add_argument("--chunk", type=int, default=64, metavar="TOKENS", help="of one step")
    parser.add_argument("--json", metavar="FILE", help="write every value there too")


def run(options: argparse.Namespace) -> None:
    """Prints tables. Raises TPError."""
    traffic = Traffic(
        prompt=options.prompt,
        tokens=options.tokens,
        batch=options.batch,
        long=options.long,
        chunk=options.chunk,
        repeats=options.repeats,
    )
    check(traffic, options.rounds)
    here = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    findings = _findings(options, traffic, here)
    print(f"\n{render(findings)}\n", flush=True)
    if options.json is not None:
        text = json.dumps(to_json(findings), indent=1, allow_nan=False)
        (here / options.json).write_text(f"{text}\n", encoding="ascii")


def bindings() -> ModelBindings:
    """Workers as a service starts them: the ranks share the processors (docs/adr/0023)."""

    def launcher(_: RunManifest) -> ExecLauncher:
        program = worker_program()
        return ExecLauncher(program.argv, program.env)

    return ModelBindings(launcher, visible_machine)


def _findings(options: argparse.Namespace, traffic: Traffic, here: Path) -> Findings:
    if options.checkpoint is not None:
        folder = here / options.checkpoint
        return compare(AbOptions(str(folder), folder.name, traffic, options.rounds), bindings())
    size = _SIZES[options.size]
    with tempfile.TemporaryDirectory(prefix="rankproof-bench-") as name:
        write_checkpoint(Path(name), size)
        model = f"four layers, random float32, widths of the 4B model / {size.value}"
        return compare(AbOptions(name, model, traffic, options.rounds), bindings())
