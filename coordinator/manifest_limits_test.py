"""The manifest's table states limits that belong to others; here they are held against those."""

from __future__ import annotations

import pytest

from errors import ConfigError
from manifest.fields import (
    BLOCK,
    BLOCK_BATCH_MAX,
    BLOCK_DEGREES,
    BLOCK_SEQUENCE_MAX,
    EXACT_INTEGER_MAX,
    FAULT_PHASES,
)
from manifest.run_manifest import from_flags
from program import block
from program.seeded import SEED_MAX
from program.spec import RESULT_PHASE
from wire.limits import PAYLOAD_BYTES_MAX


def test_the_block_is_the_one_of_the_program() -> None:
    assert BLOCK == block.PROGRAM_NAME
    assert BLOCK_DEGREES == block.WORLD_SIZES
    assert (BLOCK_BATCH_MAX, BLOCK_SEQUENCE_MAX) == (block.BATCH_MAX, block.SEQUENCE_MAX)
    assert EXACT_INTEGER_MAX == SEED_MAX


def test_faults_have_the_phases_of_the_block() -> None:
    phases = tuple(stage.phase for stage in block.block_spec(1).stages)
    assert (*phases, RESULT_PHASE) == FAULT_PHASES


def test_the_largest_block_fits_a_payload() -> None:
    shape = block.operand_shape(BLOCK_BATCH_MAX, BLOCK_SEQUENCE_MAX)
    assert 4 * shape[0] * shape[1] * shape[2] <= PAYLOAD_BYTES_MAX


@pytest.mark.parametrize("ranks", range(1, 17))
def test_manifest_and_program_accept_the_same_degrees(ranks: int) -> None:
    accepted = True
    try:
        from_flags({"ranks": str(ranks)})
    except ConfigError:
        accepted = False
    assert accepted == (ranks in block.WORLD_SIZES)
