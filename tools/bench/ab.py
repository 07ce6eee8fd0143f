"""`bench ab`: replicated TP2 against sharded TP2 against TP1, interleaved in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from coordinator.model_run import ModelBindings
from errors import ConfigError
from manifest.run_manifest import RunManifest, from_flags
from tools.bench.ab_report import Findings, RankMemory, Round
from tools.bench.ab_traffic import Traffic, measure
from tools.bench.machine import OtherPrograms, describe, versions
from tools.bench.turned_engine import TurnedEngine, peak_rss_bytes, turned_engine

BASELINE: Final = "TP1"
# Program and ranks of each configuration.
CONFIGURATIONS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {
        "replicated TP2": ("qwen35/replicated", 2),
        "sharded TP2": ("qwen35/sharded", 2),
        BASELINE: ("qwen35/sharded", 1),
    }
)
PAGE_TOKENS: Final = 16
_LOAD_MS: Final = 600_000
_PHASE_MS: Final = 120_000


@dataclass(frozen=True)
class AbOptions:
    """checkpoint: a folder. model: how the report calls it."""

    checkpoint: str
    model: str
    traffic: Traffic
    rounds: int


def check(traffic: Traffic, rounds: int) -> None:
    """Raises ConfigError for traffic that can't show what it is for."""
    least = {"rounds": (rounds, 1), "repeats": (traffic.repeats, 1), "prompt": (traffic.prompt, 2)}
    least |= {"tokens": (traffic.tokens, 2), "batch": (traffic.batch, 2)}
    least |= {"chunk": (traffic.chunk, traffic.batch + 1)}
    least |= {"long": (traffic.long, 2 * traffic.chunk)}
    for name, (value, lowest) in least.items():
        if value < lowest:
            raise ConfigError.single(f"--{name}", value, f"must be at least {lowest}")


def order(round_number: int) -> Sequence[str]:
    """Who goes when: each configuration is as often first, second and last."""
    names = list(CONFIGURATIONS)
    first = round_number % len(names)
    return names[first:] + names[:first]


def compare(options: AbOptions, bindings: ModelBindings) -> Findings:
    """Every configuration in every round on fresh processes. Raises TPError."""
    check(options.traffic, options.rounds)
    rounds: dict[str, list[Round]] = {name: [] for name in CONFIGURATIONS}
    with OtherPrograms() as others:
        for number in range(options.rounds):
            for name in order(number):
                rounds[name].append(_round(_manifest(options, name), options.traffic, bindings))
    traffic = options.traffic
    context = {
        "machine": describe(),
        "versions": versions(),
        "model": options.model,
        "requests": f"prompt {traffic.prompt}, answer {traffic.tokens} tokens; "
        f"concurrent: {traffic.batch} at once; steps of at most {traffic.chunk} tokens",
        "mixed": f"{traffic.batch - 1} decoders of {traffic.decoder_tokens} tokens, "
        f"then a prompt of {traffic.long}",
    }
    return Findings(rounds, BASELINE, context, others.cores)


def _manifest(options: AbOptions, name: str) -> RunManifest:
    program, ranks = CONFIGURATIONS[name]
    return from_flags(
        {
            "program": program,
            "ranks": str(ranks),
            "model.checkpoint": options.checkpoint,
            "model.max_batch": str(options.traffic.batch),
            "model.max_step_tokens": str(options.traffic.chunk),
            "model.page_tokens": str(PAGE_TOKENS),
            "deadlines.load_ms": str(_LOAD_MS),
            "deadlines.phase_ms": str(_PHASE_MS),
        }
    )


def _round(manifest: RunManifest, traffic: Traffic, bindings: ModelBindings) -> Round:
    positions, batch = traffic.positions_max, traffic.batch
    with turned_engine(manifest, bindings, positions, batch, with_processor=True) as engine:
        values, mixed = measure(engine, traffic)
        return Round(values, mixed, _ranks(engine))


def _ranks(engine: TurnedEngine) -> tuple[RankMemory, ...]:
    held = []
    for status in engine.model.ranks.status():
        weights, state = (int(str(status.load[name])) for name in ("bytes_held", "state_bytes"))
        slot = engine.setup.capacity.ranks[status.rank].slot_bytes
        peak = peak_rss_bytes(status.pid) if status.pid is not None else 0
        held.append(RankMemory(weights, state, slot, peak))
    return tuple(held)
