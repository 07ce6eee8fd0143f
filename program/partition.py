"""How a tensor is cut over ranks: index arithmetic only, no arrays.

A rule turns (full shape, rank, world size) into the index ranges that rank holds along one axis.
It must not know what a tensor means or where its values come from. "The ranks' ranges cover every
index exactly once" is testable without a single weight.

Sources: column- and row-parallel linear layers as in Megatron-LM (arXiv:1909.08053); a fused
projection is cut section by section, never as one block (docs/spec/program.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from errors import ConfigError


@dataclass(frozen=True)
class IndexRange:
    """Indices start <= i < stop of one axis."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Replicated:
    """Every rank holds the whole tensor."""


@dataclass(frozen=True)
class Rows:
    """Axis 0 is `units` equal blocks (heads, or single rows); a rank holds consecutive blocks.

    Column-parallel in Megatron's words. A gated query projection is Rows(query heads): the
    query rows and the gate rows of one head are one block.
    """

    units: int


@dataclass(frozen=True)
class Columns:
    """Axis 1 is `units` equal blocks; a rank holds consecutive blocks. Row-parallel."""

    units: int


@dataclass(frozen=True)
class OnRank:
    """One rank holds the whole tensor, the others none of it (an output head)."""

    rank: int


@dataclass(frozen=True)
class Section:
    """`units` blocks of `unit_size` consecutive rows."""

    units: int
    unit_size: int


@dataclass(frozen=True)
class Sections:
    """Axis 0 is several sections one after the other, each cut separately."""

    sections: tuple[Section, ...]


ShardRule = Replicated | Rows | Columns | Sections | OnRank


@dataclass(frozen=True)
class Cut:
    """What one rank holds: index ranges of one axis, in order. axis None: the whole tensor."""

    axis: int | None
    ranges: tuple[IndexRange, ...]


def divide_exactly(numerator: int, denominator: int, field: str) -> int:
    """numerator / denominator. Raises ConfigError naming `field` when a remainder is left."""
    if denominator <= 0 or numerator % denominator:
        degrees = [str(d) for d in range(1, min(numerator, 64) + 1) if numerator % d == 0]
        raise ConfigError.single(
            field,
            numerator,
            f"must be divisible by {denominator} ranks; it divides by {', '.join(degrees)}",
        )
    return numerator // denominator


def _block_range(units: int, unit_size: int, offset: int, rank: int, world_size: int) -> IndexRange:
    per_rank = divide_exactly(units, world_size, "units") * unit_size
    return IndexRange(offset + rank * per_rank, offset + (rank + 1) * per_rank)


def cut(rule: ShardRule, shape: tuple[int, ...], rank: int, world_size: int) -> Cut:
    """The index ranges of `shape` that `rank` of `world_size` holds under `rule`.

    Raises ConfigError when the rule does not divide, or does not describe this shape.
    """
    if not 0 <= rank < world_size:
        raise ConfigError.single("rank", rank, f"must be at least 0 and below {world_size}")
    match rule:
        case Replicated():
            return Cut(None, ())
        case OnRank(holder):
            return Cut(0, (IndexRange(0, shape[0] if rank == holder else 0),))
        case Rows(units) | Columns(units):
            axis = 0 if isinstance(rule, Rows) else 1
            unit_size = divide_exactly(shape[axis], units, "units of the axis")
            return Cut(axis, (_block_range(units, unit_size, 0, rank, world_size),))
        case Sections(sections):
            offset = 0
            ranges = []
            for section in sections:
                ranges.append(
                    _block_range(section.units, section.unit_size, offset, rank, world_size)
                )
                offset += section.units * section.unit_size
            if offset != shape[0]:
                raise ConfigError.single("sections", offset, f"must add up to {shape[0]} rows")
            return Cut(0, tuple(ranges))


def local_shape(
    rule: ShardRule, shape: tuple[int, ...], rank: int, world_size: int
) -> tuple[int, ...]:
    """The shape of the slice that `rank` holds."""
    piece = cut(rule, shape, rank, world_size)
    if piece.axis is None:
        return shape
    length = sum(r.length for r in piece.ranges)
    return (*shape[: piece.axis], length, *shape[piece.axis + 1 :])
