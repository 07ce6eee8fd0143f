"""Command line of `bench serve`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Final

from coordinator.arguments_serve import read_serve
from coordinator.options import CallContext
from coordinator.worker_program import embedded_model
from errors import ConfigError
from tools.bench import serve_overhead, serve_report
from tools.bench.ab_command import bindings
from tools.bench.machine import OtherPrograms, describe, versions
from tools.bench.serve import LOADS, Loaded, run_loads
from tools.bench.serve_client import Endpoint
from tools.bench.serve_loads import Asking
from tools.bench.serve_overhead import Overhead
from tools.bench.serve_server import built_program, own_server
from tools.bench.serve_turns import BATCH, overhead

_COUNTS: Final = ("prompt", "tokens", "long", "clients", "requests", "turns", "rounds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", metavar="URL", help="a running server; without it, one of its own")
    parser.add_argument("--api-key-file", metavar="FILE", help="the key of the server at --url")
    parser.add_argument("--checkpoint", metavar="DIR", help="of its own server; default embedded")
    parser.add_argument("--tp", type=int, choices=(1, 2, 4), default=2, help="of its own server")
    parser.add_argument("--loads", default=",".join(LOADS), metavar="NAME,NAME")
    parser.add_argument("--clients", type=int, default=16, metavar="N", help="at once")
    parser.add_argument("--requests", type=int, default=64, metavar="N", help="per load")
    parser.add_argument("--rate", type=float, default=8.0, metavar="N", help="arrivals per second")
    parser.add_argument("--turns", type=int, default=4, metavar="N", help="of a conversation")
    parser.add_argument("--prompt", type=int, default=32, metavar="TOKENS")
    parser.add_argument("--tokens", type=int, default=16, metavar="TOKENS", help="of each answer")
    parser.add_argument("--long", type=int, default=512, metavar="TOKENS", help="a long prompt")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--timeout-s", type=float, default=120.0, metavar="S", help="per request")
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="for the overhead")
    parser.add_argument("--json", metavar="FILE", help="write everything there too")


def run(options: argparse.Namespace) -> None:
    """Prints tables. Raises TPError."""
    names = _check(options)
    here = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    asking = Asking(
        model="",
        vocabulary=0,
        prompt=options.prompt,
        tokens=options.tokens,
        long=options.long,
        clients=options.clients,
        requests=options.requests,
        rate=options.rate,
        turns=options.turns,
        seed=options.seed,
        timeout_s=options.timeout_s,
    )
    cost = None
    with OtherPrograms() as others:
        if options.url is not None:
            key = _key(options, here)
            loaded = asyncio.run(run_loads(Endpoint.of(options.url, key), asking, names))
        else:
            loaded, cost = _own(options, here, asking, names)
    print(f"\n{_text(options, loaded, cost, others.cores)}\n", flush=True)
    if options.json is not None:
        found = {
            "machine": describe(),
            "versions": versions(),
            "options": {name: value for name, value in vars(options).items() if name != "command"},
            "other_cores": others.cores,
            "generator_cores": loaded.generator_cores,
            "loads": serve_report.to_json(loaded.reports),
            "overhead": None if cost is None else serve_overhead.to_json(cost),
        }
        text = json.dumps(found, indent=1, allow_nan=False)
        (here / options.json).write_text(f"{text}\n", encoding="ascii")


def _check(options: argparse.Namespace) -> list[str]:
    for name in _COUNTS:
        if getattr(options, name) < 1:
            raise ConfigError.single(f"--{name}", getattr(options, name), "must be at least 1")
    for name in ("rate", "timeout_s"):
        value, flag = getattr(options, name), f"--{name.replace('_', '-')}"
        if not 0.0 < value < 1e6:
            raise ConfigError.single(flag, value, "must be above 0 and below 1000000")
    names: list[str] = options.loads.split(",")
    for name in names:
        if name not in LOADS:
            raise ConfigError.single("--loads", name, f"must be among {', '.join(LOADS)}")
    if options.url is None and options.api_key_file is not None:
        raise ConfigError.single("--api-key-file", options.api_key_file, "goes together with --url")
    if options.url is not None:
        Endpoint.of(options.url)
        if options.checkpoint is not None:
            rule = "is for a server of its own, and --url names another"
            raise ConfigError.single("--checkpoint", options.checkpoint, rule)
    return names


def _key(options: argparse.Namespace, here: Path) -> str | None:
    if options.api_key_file is None:
        return None
    path = here / str(options.api_key_file)
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as failure:
        raise ConfigError.single("--api-key-file", path, f"can't be read: {failure}") from None


def _own(
    options: argparse.Namespace, here: Path, asking: Asking, names: list[str]
) -> tuple[Loaded, Overhead]:
    folder = embedded_model() if options.checkpoint is None else here / options.checkpoint
    if folder is None:
        raise ConfigError.single("--checkpoint", None, "must be given: this build has no model")
    model = ["--checkpoint", str(folder), "--tp", str(options.tp), "--max-batch", str(BATCH)]
    with own_server(built_program(), model) as started:
        loaded = asyncio.run(run_loads(Endpoint.of(started.url), asking, names))
    served = read_serve(["--port", "0", *model], CallContext(here))
    with Path(os.devnull).open("w", encoding="ascii") as log:
        return loaded, overhead(served, bindings(), asking, options.rounds, log)


def _text(
    options: argparse.Namespace, loaded: Loaded, cost: Overhead | None, other_cores: float
) -> str:
    server = options.url or f"a server of its own, TP{options.tp}"
    requests = (
        f"prompt {options.prompt}, answer {options.tokens} tokens, long prompt {options.long}; "
        f"{options.clients} clients, open loop {options.rate:g} per second"
    )
    cores = f"the load generator {loaded.generator_cores:.2f}, other programs {other_cores:.2f}"
    context = [
        f"- versions: {versions()}",
        f"- server: {server}",
        f"- requests: {requests}",
        f"- cores used meanwhile: {cores}",
    ]
    parts = ["\n".join(context), serve_report.render(loaded.reports)]
    if cost is not None:
        parts.append(serve_overhead.render(cost))
    return "\n\n".join(parts)
