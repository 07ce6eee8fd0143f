"""Addresses: accepted forms, and one clear refusal for everything else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import ConfigError
from wire.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address", "is_local"),
    [
        ("127.0.0.1:80", Address("127.0.0.1", 80), True),
        ("tcp:127.0.0.1:0", Address("127.0.0.1", 0), True),
        ("localhost:65535", Address("127.0.0.1", 65_535), True),
        ("127.9.9.9:1", Address("127.9.9.9", 1), True),
        ("tcp:[::1]:5", Address("::1", 5), True),
        ("0.0.0.0:5", Address("0.0.0.0", 5), False),
        ("[::]:5", Address("::", 5), False),
        ("192.0.2.7:5", Address("192.0.2.7", 5), False),
        ("unix:run/socket", Address(path="run/socket"), True),
        ("unix:" + "p" * 107, Address(path="p" * 107), True),
    ],
)
def test_accepted(text: str, address: Address, is_local: bool) -> None:
    assert parse_address(text) == address
    assert address.is_local is is_local
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "80",
        ":80",
        "localhost",
        "localhost:",
        "localhost:-1",
        "localhost:+1",
        "localhost: 1",
        "localhost:65536",
        "localhost:000001",
        "localhost:\u0661",
        "localhost:1:2",
        "example.org:80",
        "256.0.0.1:80",
        "127.1:80",
        "unix:",
        "unix:a\0b",
        "unix:" + "p" * 108,
        "unix:" + "\u00e9" * 54,
        "unix:\ud800",
        "udp:127.0.0.1:80",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_address(text, "--connect")
    (problem,) = refused.value.problems
    assert problem.field == "--connect"
    problem.sentence().encode("utf-8")


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=20) | st.text("tcpunix:.[]0123456789", max_size=24))
def test_any_text_is_an_address_or_a_config_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ConfigError:
        return
    assert parse_address(str(address)) == address
