"""The manifest's table states limits that belong to others; here they are held against those."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import ConfigError
from manifest.fields import (
    BLOCK,
    BLOCK_BATCH_MAX,
    BLOCK_DEGREES,
    BLOCK_SEQUENCE_MAX,
    EXACT_INTEGER_MAX,
    FAULT_KINDS,
    FAULT_PHASES,
)
from manifest.run_manifest import from_flags
from program import block
from program.seeded import SEED_MAX
from program.spec import RESULT_PHASE
from simulation.faults import FaultKind
from wire.address import parse_address
from wire.limits import PAYLOAD_BYTES_MAX


def test_the_block_is_the_one_of_the_program() -> None:
    assert BLOCK == block.PROGRAM_NAME
    assert BLOCK_DEGREES == block.WORLD_SIZES
    assert (BLOCK_BATCH_MAX, BLOCK_SEQUENCE_MAX) == (block.BATCH_MAX, block.SEQUENCE_MAX)
    assert EXACT_INTEGER_MAX == SEED_MAX


def test_faults_have_the_phases_of_the_block() -> None:
    phases = tuple(stage.phase for stage in block.block_spec(1).stages)
    assert (*phases, RESULT_PHASE) == FAULT_PHASES


def test_faults_are_those_that_can_be_planted() -> None:
    assert set(FAULT_KINDS) == {kind.value for kind in FaultKind}


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


@given(st.from_regex(r"(tcp:)?(localhost|[0-9.]{7,15}|\[::1\]):[0-9]{1,6}", fullmatch=True))
def test_an_address_that_the_manifest_accepts_can_be_listened_on(text: str) -> None:
    try:
        listen = from_flags({"listen": text}).listen
    except ConfigError:
        return
    address = parse_address(listen, field="listen")
    assert ip_address(str(address.host)).is_loopback


@pytest.mark.parametrize("text", ["127.0.0.1:0", "tcp:127.255.255.254:65535", "[::1]:7400"])
def test_loopback_addresses(text: str) -> None:
    assert from_flags({"listen": text}).transport == "tcp"
    assert parse_address(text, field="listen").path is None
