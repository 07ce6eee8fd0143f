"""Cutting a weight's bytes for a rank: the partition rules applied to raw C-order payloads."""

from __future__ import annotations

from program.partition import ShardRule, cut


def slice_bytes(
    rule: ShardRule,
    shape: tuple[int, ...],
    item_bytes: int,
    data: bytes,
    rank: int,
    world_size: int,
) -> bytes:
    """The bytes of `rank`'s slice of a tensor of `shape`, given the whole tensor's bytes.

    Rows come out as consecutive bytes; columns as the same byte range of every row.
    """
    piece = cut(rule, shape, rank, world_size)
    if piece.axis is None:
        return data
    # One block per index of the axes before the cut one; a row of `stride` bytes per index of it.
    stride = item_bytes
    for extent in shape[piece.axis + 1 :]:
        stride *= extent
    block = stride * shape[piece.axis]
    return b"".join(
        data[start + part.start * stride : start + part.stop * stride]
        for start in range(0, len(data), block)
        for part in piece.ranges
    )
