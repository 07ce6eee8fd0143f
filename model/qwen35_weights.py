"""The weights of one rank as the executor uses them, loaded from a claimed checkpoint.

Matrices that multiply the same input are held as one (program/qwen35_memory.py). Every weight of
the program is loaded exactly once; the report says what was read and what is held. It must not
know requests or formulas, except that norms centred on zero are used as 1 + w.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from errors import ConfigError, MisuseError
from model.crew import SOLO, Crew
from model.linear import Linear, widen
from model.ops import Array
from model.safetensors_file import MappedFile, Stored
from program.checkpoint import Checkpoint, Skipped, StoredDtype
from program.partition import cut
from program.qwen35 import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    PRIMARY_RANK,
    LayerType,
    Qwen35Config,
)
from program.qwen35_memory import (
    ATTENTION_INPUTS,
    LINEAR_ATTENTION_INPUTS,
    MLP_INPUTS,
    WeightsDtype,
    held_dtypes,
)
from program.spec import ProgramSpec, WeightSpec

# (bytes read so far, bytes to read)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AttentionWeights:
    """inputs: rows of q_proj (per head: query, gate), k_proj, v_proj. Norm scales: [head_dim]."""

    inputs: Linear
    query_scale: Array
    key_scale: Array
    output: Linear


@dataclass(frozen=True)
class LinearAttentionWeights:
    """inputs: rows of in_proj_qkv, in_proj_z, in_proj_b, in_proj_a.

    convolution: [channels, kernel]; rate = exp(A_log), dt_bias: [value_heads];
    norm_weight: [value_dim], used as it is.
    """

    inputs: Linear
    convolution: Array
    rate: Array
    dt_bias: Array
    norm_weight: Array
    output: Linear


@dataclass(frozen=True)
class MlpWeights:
    """inputs: rows of gate_proj, then of up_proj."""

    inputs: Linear
    output: Linear


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer. Scales [hidden_size] are 1 + the stored weight."""

    input_scale: Array
    mixer: AttentionWeights | LinearAttentionWeights
    mlp_scale: Array
    mlp: MlpWeights


@dataclass(frozen=True)
class Qwen35Weights:
    """Everything one rank holds. head: the embedding itself when tied; None where not primary."""

    embedding: Linear
    layers: tuple[LayerWeights, ...]
    final_scale: Array
    head: Linear | None


@dataclass(frozen=True)
class LoadReport:
    """What one rank's load did. skipped: tensors passed over by group, in the whole checkpoint."""

    bytes_read: int
    bytes_held: int
    tensors: int
    skipped_tensors: Mapping[Skipped, int]
    skipped_bytes: int
    peak_rss_bytes: int


def load_weights(
    config: Qwen35Config,
    program: ProgramSpec,
    checkpoint: Checkpoint,
    rank: int,
    *,
    weights_dtype: WeightsDtype = WeightsDtype.AUTO,
    check_values: bool = False,
    progress: Progress | None = None,
    crew: Crew = SOLO,
) -> tuple[Qwen35Weights, LoadReport]:
    """Read this rank's slices.

    check_values: refuse weights that hold NaN or infinity. crew: threads of the products. Raises
    ConfigError: checkpoint.unreadable, checkpoint.header (a file that has shrunk),
    checkpoint.values.
    """
    loader = _Loader(config, program, checkpoint, rank, weights_dtype, check_values, progress, crew)
    with loader:
        weights = loader.model()
    return weights, loader.report()


class _Loader:
    """Files stay mapped while the model is put together."""

    def __init__(
        self,
        config: Qwen35Config,
        program: ProgramSpec,
        checkpoint: Checkpoint,
        rank: int,
        weights_dtype: WeightsDtype,
        check_values: bool,
        progress: Progress | None,
        crew: Crew,
    ) -> None:
        self._config = config
        self._program = program
        self._checkpoint = checkpoint
        self._rank = rank
        self._check_values = check_values
        self._progress = progress
        self._crew = crew
        self._compute = np.dtype(program.partial_dtype.value)
        self._held = held_dtypes(config, checkpoint, weights_dtype)
        self._specs = {weight.name: weight for weight in program.weights}
        self._pending = set(self._specs)
        self._files: dict[str, MappedFile] = {}
        self._bytes_read = 0
        self._bytes_held = 0
        self._bytes_total = sum(
            int(np.prod(self._local_shape(weight))) * checkpoint.tensors[name].dtype.item_bytes
            for name, weight in self._specs.items()
        )

    def __enter__(self) -> _Loader:
        for stored in self._checkpoint.tensors.values():
            if stored.file.name not in self._files:
                self._files[stored.file.name] = MappedFile(stored.file)
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files.values():
            file.close()

    def report(self) -> LoadReport:
        if self._pending:
            raise MisuseError(f"weights that were never loaded: {sorted(self._pending)}")
        return LoadReport(
            bytes_read=self._bytes_read,
            bytes_held=self._bytes_held,
            tensors=len(self._specs),
            skipped_tensors=self._checkpoint.skipped_tensors,
            skipped_bytes=self._checkpoint.skipped_bytes,
            peak_rss_bytes=peak_rss_bytes(),
        )

    def model(self) -> Qwen35Weights:
        embedding = self._matrix(EMBEDDING)
        layers = tuple(self._layer(i, kind) for i, kind in enumerate(self._config.layer_types))
        final_scale = self._centred(FINAL_NORM)
        head = embedding if self._config.tie_word_embeddings else self._matrix(HEAD)
        is_primary = self._rank == PRIMARY_RANK
        return Qwen35Weights(embedding, layers, final_scale, head if is_primary else None)

    def _layer(self, index: int, kind: LayerType) -> LayerWeights:
        prefix = f"layers.{index}."
        input_scale = self._centred(prefix + "input_layernorm.weight")
        mixer = (
            self._attention(prefix + "self_attn.")
            if kind is LayerType.FULL
            else self._linear_attention(prefix + "linear_attn.")
        )
        mlp_scale = self._centred(prefix + "post_attention_layernorm.weight")
        inputs = self._matrix(*(f"{prefix}mlp.{name}.weight" for name in MLP_INPUTS))
        mlp = MlpWeights(inputs, self._matrix(prefix + "mlp.down_proj.weight"))
        return LayerWeights(input_scale, mixer, mlp_scale, mlp)

    def _attention(self, prefix: str) -> AttentionWeights:
        return AttentionWeights(
            inputs=self._matrix(*(f"{prefix}{name}.weight" for name in ATTENTION_INPUTS)),
            query_scale=self._centred(prefix + "q_norm.weight"),
            key_scale=self._centred(prefix + "k_norm.weight"),
            output=self._matrix(prefix + "o_proj.weight"),
        )

    def _linear_attention(self, prefix: str) -> LinearAttentionWeights:
        names = (f"{prefix}{name}.weight" for name in LINEAR_ATTENTION_INPUTS)
        return LinearAttentionWeights(
            inputs=self._matrix(*names),
            convolution=self._vector(prefix + "conv1d.weight")[:, 0, :],
            rate=np.exp(self._vector(prefix + "A_log")),
            dt_bias=self._vector(prefix + "dt_bias"),
            norm_weight=self._vector(prefix + "norm.weight"),
            output=self._matrix(prefix + "out_proj.weight"),
        )

    def _centred(self, name: str) -> Array:
        """A norm's weight that is stored centred on zero, as the scale it stands for."""
        return self._vector(name) + 1

    def _vector(self, name: str) -> Array:
        """A small tensor in the compute dtype, with its own shape."""
        spec, stored = self._claim(name), self._checkpoint.tensors[name]
        result: Array = np.empty(self._local_shape(spec), self._compute)
        for first, block in self._blocks(spec):
            widen(block, stored.dtype, result[first : first + len(block)])
        self._bytes_held += result.nbytes
        return result

    def _matrix(self, *names: str) -> Linear:
        """Matrices over the same input, one below the other."""
        specs = [self._claim(name) for name in names]
        shapes = [self._local_shape(spec) for spec in specs]
        rows = sum(shape[0] for shape in shapes)
        held = self._held[names[0]]
        linear = Linear(rows, shapes[0][1], held, self._compute, self._crew)
        offset = 0
        for spec, shape in zip(specs, shapes, strict=True):
            dtype = self._checkpoint.tensors[spec.name].dtype
            for first, block in self._blocks(spec):
                linear.store(offset + first, block, dtype)
            offset += shape[0]
        self._bytes_held += linear.held_bytes
        return linear

    def _claim(self, name: str) -> WeightSpec:
        if name not in self._pending:
            raise MisuseError(f"{name} is loaded twice, or is not a weight of the program")
        self._pending.remove(name)
        return self._specs[name]

    def _local_shape(self, spec: WeightSpec) -> tuple[int, ...]:
        return spec.local_shape(self._rank, self._program.world_size)

    def _blocks(self, spec: WeightSpec) -> Iterator[tuple[int, Stored]]:
        """This rank's slice, block by block, counted, and checked when asked for."""
        stored = self._checkpoint.tensors[spec.name]
        piece = cut(spec.rule, spec.shape, self._rank, self._program.world_size)
        for first, block in self._files[stored.file.name].blocks(stored, piece):
            if self._check_values and not all_finite(block, stored.dtype):
                rule = "must hold finite numbers only"
                raise ConfigError.single(spec.name, "NaN or infinity", rule, "checkpoint.values")
            self._bytes_read += block.nbytes
            if self._progress is not None:
                self._progress(self._bytes_read, self._bytes_total)
            yield first, block


def peak_rss_bytes() -> int:
    """The largest resident size of this program so far.

    Not getrusage's: a program that was started by a larger one begins with that one's peak.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def all_finite(values: Stored, dtype: StoredDtype) -> bool:
    """Whether no stored element is NaN or infinite."""
    if dtype is StoredDtype.BFLOAT16:  # all ones in the exponent
        return bool(((values & 0x7F80) != 0x7F80).all())
    return bool(np.isfinite(values).all())
