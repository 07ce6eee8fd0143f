"""Everything about a model run that is decided before a process starts.

The checkpoint's config and headers, the program, the capacity over all ranks and the processors of
each: read, checked and refused here, with every rule of docs/spec/checkpoint.md. No arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator.devices import bind_ranks
from errors import ConfigError
from manifest.run_manifest import ModelOptions, RunManifest
from program.capacity import Capacity, CapacityInput, plan_capacity
from program.checkpoint import Checkpoint, open_checkpoint
from program.digest import program_digest
from program.plan import tokens_per_step_max
from program.qwen35 import Qwen35Config, Variant, local_dimensions, qwen35_program
from program.qwen35_config import read_config
from program.qwen35_load import LoadOrder, ModelSource
from program.qwen35_memory import WeightsDtype, held_dtypes, held_item_bytes, scratch_bytes
from program.spec import Dtype, ProgramSpec

# An idle rank: interpreter, NumPy, code, thread stacks.
RESERVE_BYTES: Final = 96 << 20
_COMPUTE: Final = {"float32": Dtype.FLOAT32, "float64": Dtype.FLOAT64}


@dataclass(frozen=True)
class Machine:
    """What the machine offers. memory_bytes: for all ranks together. processors: visible ones."""

    memory_bytes: int
    processors: frozenset[int]


@dataclass(frozen=True)
class ModelSetup:
    """A model run, ready to start."""

    config: Qwen35Config
    spec: ProgramSpec
    program_digest: str
    checkpoint: Checkpoint
    source: ModelSource
    capacity: Capacity
    loads: tuple[LoadOrder, ...]


def set_up(
    manifest: RunManifest, machine: Callable[[], Machine], positions_max: int | None = None
) -> ModelSetup:
    """Raises ConfigError: a checkpoint, degree, device or capacity that can't be.

    positions_max: the longest request of this run, so that no memory is set aside for longer ones;
    None for whatever the model's context allows.
    """
    options = manifest.model
    if options is None:
        raise ConfigError.single("program", manifest.program, "is no model program")
    offered = machine()
    folder = Path(options.checkpoint).absolute()
    config = read_config(folder)
    compute = _COMPUTE[options.compute_dtype]
    variant = Variant(manifest.program)
    spec = qwen35_program(config, variant, manifest.ranks, compute)
    processors = bind_ranks(options.device_ordinals, offered.processors, manifest.ranks)
    checkpoint = open_checkpoint(folder, spec.weights)
    held = WeightsDtype(options.weights_dtype)
    item_bytes = held_item_bytes(spec, held_dtypes(config, checkpoint, held))
    step_tokens = _step_tokens(options, spec)
    local = local_dimensions(config, variant, manifest.ranks)
    context = config.max_position_embeddings
    capacity = plan_capacity(
        spec,
        CapacityInput(
            rank_memory_bytes=_memory(options.rank_memory_bytes, manifest.ranks, offered),
            weight_item_bytes=item_bytes,
            vocab_size=config.vocab_size,
            context_tokens=context if positions_max is None else min(context, positions_max),
            max_batch=options.max_batch,
            step_tokens=step_tokens,
            page_tokens=options.page_tokens,
            scratch_bytes=scratch_bytes(config, local, step_tokens, compute),
            reserve_bytes=RESERVE_BYTES,
        ),
    )
    loads = tuple(
        LoadOrder(capacity.limits, held, cpus, options.check_weights) for cpus in processors
    )
    source = ModelSource(str(folder), compute)
    return ModelSetup(config, spec, program_digest(spec), checkpoint, source, capacity, loads)


def _step_tokens(options: ModelOptions, spec: ProgramSpec) -> int:
    largest = tokens_per_step_max(spec.hidden_size, spec.partial_dtype.item_bytes)
    if options.max_step_tokens > largest:
        rule = f"must be at most {largest}: a partial [tokens, {spec.hidden_size}] is one frame"
        raise ConfigError.single("model.max_step_tokens", options.max_step_tokens, rule)
    return options.max_step_tokens


def _memory(given: Sequence[int], world_size: int, machine: Machine) -> tuple[int, ...]:
    """One budget per rank: as given, one for all, or an equal share of what the machine has."""
    if not given:
        return (machine.memory_bytes // world_size,) * world_size
    return tuple(given) * world_size if len(given) == 1 else tuple(given)
