"""Programs by name: what a worker binds to turn an ACK into something it can run.

A program's modules are imported when it is opened, because a worker of the block would spend a
third of its start on modules that it never runs. It must not know frames or sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from errors import ConfigError, ContractError

if TYPE_CHECKING:
    from model.bound_block import OpenedBlock
    from model.bound_qwen35 import OpenedQwen35

Parameters = Mapping[str, object]


def _open_block(parameters: Parameters, rank: int, world_size: int) -> OpenedBlock:
    from model.bound_block import open_block

    return open_block(parameters, rank, world_size)


def _open_qwen35(variant: str, parameters: Parameters, rank: int, world_size: int) -> OpenedQwen35:
    from model.bound_qwen35 import open_qwen35
    from program.qwen35 import Variant

    return open_qwen35(Variant(variant), parameters, rank, world_size)


PROGRAMS: Final[Mapping[str, Callable[[Parameters, int, int], OpenedBlock | OpenedQwen35]]] = {
    "block": _open_block,
    "qwen35/replicated": partial(_open_qwen35, "qwen35/replicated"),
    "qwen35/sharded": partial(_open_qwen35, "qwen35/sharded"),
}


def open_program(
    program: str, parameters: Parameters, rank: int, world_size: int
) -> OpenedBlock | OpenedQwen35:
    """The program of an ACK. Raises ContractError `contract.program` for one not known here."""
    opener = PROGRAMS.get(program)
    if opener is None:
        known = ", ".join(sorted(PROGRAMS))
        raise ContractError("program", f"program is {program!r}, this worker knows {known}")
    try:
        return opener(parameters, rank, world_size)
    except ConfigError as failure:
        raise ContractError("program", failure.message) from None
