"""The frozen decoder block as a program: its tensors, cuts, stages, limits and payload formula.

One decoder block of hidden size 16 with grouped-query attention and a SwiGLU MLP, weights and input
from a seed. Pure values: what a frame's metadata says is composed from them by whoever speaks on
the wire. It must not know frames or arrays. The law is docs/spec/program.md (clauses B).
"""

from __future__ import annotations

from typing import Final

from errors import ConfigError, ConfigProblem
from program.partition import Columns, Rows, ShardRule, cut, divide_exactly
from program.seeded import tensor_bytes
from program.spec import Dtype, Loading, ProgramSpec, Stage, WeightSpec

PROGRAM_NAME: Final = "block"
ARITHMETIC: Final = "exact-1"
INPUT_TENSOR: Final = "x"
RESULT_TENSOR: Final = "y"
ATTENTION_PHASE: Final = "attention"
MLP_PHASE: Final = "mlp"

HIDDEN_SIZE: Final = 16
QUERY_HEADS: Final = 8
KV_HEADS: Final = 4
HEAD_DIM: Final = 2
INTERMEDIATE_SIZE: Final = 24
QUERY_HEADS_PER_KV_HEAD: Final = QUERY_HEADS // KV_HEADS
# The leaves of every contraction that ranks share (B5): one per KV head, and as many MLP columns.
LEAVES: Final = KV_HEADS
WORLD_SIZES: Final = (1, 2, 4)

# Far below the wire's 16 MiB per payload (64 x 512 tokens are 2 MiB); the scores, quadratic in the
# sequence, are what a worker must hold: one sequence of 512 tokens takes 75 MB of scratch.
BATCH_MAX: Final = 64
SEQUENCE_MAX: Final = 512

# Weights uniform in [-1/4, 1/4), where 1/4 = 1/sqrt(hidden). Inputs in [-1/16, 1/16): small enough
# that leaving out the norm's eps moves an output by 1e-4, so that the oracle's gate sees it.
WEIGHT_EXPONENT: Final = -25
INPUT_EXPONENT: Final = -27


def _weights() -> tuple[WeightSpec, ...]:
    """The seven weights in the order they travel, each [out, in]."""
    rows, columns = Rows(LEAVES), Columns(LEAVES)
    query, kv = QUERY_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    table: tuple[tuple[str, int, int, ShardRule], ...] = (
        ("wq", query, HIDDEN_SIZE, rows),
        ("wk", kv, HIDDEN_SIZE, rows),
        ("wv", kv, HIDDEN_SIZE, rows),
        ("wo", HIDDEN_SIZE, query, columns),
        ("w_gate", INTERMEDIATE_SIZE, HIDDEN_SIZE, rows),
        ("w_up", INTERMEDIATE_SIZE, HIDDEN_SIZE, rows),
        ("w_down", HIDDEN_SIZE, INTERMEDIATE_SIZE, columns),
    )
    return tuple(WeightSpec(name, (out, fan_in), rule) for name, out, fan_in, rule in table)


def check_world_size(world_size: int) -> None:
    """Raises ConfigError naming the degrees that work."""
    if world_size not in WORLD_SIZES:
        rule = f"must divide the {KV_HEADS} KV heads; degrees that work: 1, 2, 4"
        raise ConfigError.single("world_size", world_size, rule, "config.degree")


def check_shape(batch: int, sequence: int) -> None:
    """Raises ConfigError, with every problem, unless batch and sequence are within the limits."""
    limits = (("batch", batch, BATCH_MAX), ("sequence", sequence, SEQUENCE_MAX))
    problems = [
        ConfigProblem(field, str(value), f"must be at least 1 and at most {maximum}")
        for field, value, maximum in limits
        if not 1 <= value <= maximum
    ]
    if problems:
        raise ConfigError(problems)


def block_spec(world_size: int) -> ProgramSpec:
    """The block at `world_size` ranks. Raises ConfigError naming the degrees that work."""
    check_world_size(world_size)
    return ProgramSpec(
        name=PROGRAM_NAME,
        world_size=world_size,
        hidden_size=HIDDEN_SIZE,
        weights=_weights(),
        stages=(Stage(ATTENTION_PHASE), Stage(MLP_PHASE)),
        loading=Loading.WIRE,
        artifact_ranks=tuple(range(world_size)),
        arithmetic=ARITHMETIC,
    )


def operand_shape(batch: int, sequence: int) -> tuple[int, int, int]:
    """Shape of the input, of every partial and reduction, and of the result."""
    check_shape(batch, sequence)
    return (batch, sequence, HIDDEN_SIZE)


def block_payload_bytes(world_size: int, batch: int, sequence: int) -> int:
    """Payload bytes of one case, all ranks, both directions: 4 R (E + 6 B T H).

    E = 2 H q + 2 H k + 3 H i elements of weights per rank, with q, k and i the rank's query, key
    and MLP widths; six tensors of B T H elements travel per rank (input, two partials, two
    reductions, result). Raises ConfigError for a degree or a shape outside the limits.
    """
    check_world_size(world_size)
    check_shape(batch, sequence)
    query = divide_exactly(QUERY_HEADS, world_size, "query heads") * HEAD_DIM
    kv = divide_exactly(KV_HEADS, world_size, "KV heads") * HEAD_DIM
    intermediate = divide_exactly(INTERMEDIATE_SIZE, world_size, "MLP columns")
    elements = HIDDEN_SIZE * (2 * query + 2 * kv + 3 * intermediate)
    per_rank = elements + 6 * batch * sequence * HIDDEN_SIZE
    return Dtype.FLOAT32.item_bytes * world_size * per_rank


def input_payload(seed: int, batch: int, sequence: int) -> bytes:
    """Payload of INPUT: the seeded operand [batch, sequence, hidden], C order, little-endian.

    Raises ConfigError for a seed or a shape outside the limits.
    """
    batch, sequence, hidden = operand_shape(batch, sequence)
    return tensor_bytes(seed, INPUT_TENSOR, batch * sequence * hidden, INPUT_EXPONENT)


def weight_payload(seed: int, weight: WeightSpec, rank: int, world_size: int) -> bytes:
    """Payload of WEIGHT: the rank's slice of the seeded weight, C order, little-endian.

    Raises ConfigError for a seed or a rank outside the limits.
    """
    out, fan_in = weight.shape
    whole = tensor_bytes(seed, weight.name, out * fan_in, WEIGHT_EXPONENT)
    piece = cut(weight.rule, weight.shape, rank, world_size)
    row_bytes = fan_in * Dtype.FLOAT32.item_bytes
    if piece.axis is None:
        return whole
    if piece.axis == 0:
        return b"".join(whole[r.start * row_bytes : r.stop * row_bytes] for r in piece.ranges)
    item = Dtype.FLOAT32.item_bytes
    return b"".join(
        whole[row + r.start * item : row + r.stop * item]
        for row in range(0, len(whole), row_bytes)
        for r in piece.ranges
    )
