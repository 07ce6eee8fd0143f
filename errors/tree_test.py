"""What a failure of a peer keeps when it is located or put in other words."""

from __future__ import annotations

from errno import ECONNRESET

import pytest

from errors import ContractError, DeadlineError, PeerError, PoisonedError, ProtocolError

KINDS = [
    ProtocolError("closed", "gone", errno=ECONNRESET),
    ContractError("kind", "gone", errno=ECONNRESET),
    DeadlineError("receive", "gone", errno=ECONNRESET),
]


@pytest.mark.parametrize("failure", KINDS)
def test_nothing_is_lost_on_the_way(failure: PeerError) -> None:
    told = failure.located(3, "mlp").located(4, "plan").reworded("gone for good")
    assert (type(told), told.code, told.message) == (type(failure), failure.code, "gone for good")
    assert (told.rank, told.phase) == (3, "mlp")
    assert (told.errno, told.errno_name) == (ECONNRESET, "ECONNRESET")
    assert "ECONNRESET" in told.diagnostics()
    assert "ECONNRESET" in PoisonedError(told).message


def test_an_end_without_an_error_has_no_number() -> None:
    failure = ProtocolError("closed", "gone").located(0, "mlp")
    assert (failure.errno, failure.errno_name) == (None, None)
    assert failure.diagnostics() == "protocol.closed: rank 0 in phase mlp: gone"


def test_a_number_that_has_no_name_here() -> None:
    assert ProtocolError("closed", "gone", errno=99_999).errno_name == "99999"
