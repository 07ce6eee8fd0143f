from __future__ import annotations

import pytest

from errors import ConfigError
from program.strict_json import parse_object, shown


def test_reads_an_object() -> None:
    data = b'{"a": [1, 2.5, true, null, "x"], "b": {"a": 1}}'
    assert parse_object(data, "f", bytes_max=100, code="c") == {
        "a": [1, 2.5, True, None, "x"],
        "b": {"a": 1},
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'{"a": 1} x',
        b'{"a": 1, "a": 1}',
        b'{"o": {"a": 1, "b": 2, "a": 1}}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": "\xff"}',
        b'{"a": ' + b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": 1}' + b" " * 500_000,
    ],
)
def test_refuses(data: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_object(data, "f", bytes_max=600_000 if len(data) != 500_008 else 1000, code="c")
    assert caught.value.code == "c"
    assert caught.value.problems[0].field == "f"


def test_a_shown_value_is_one_short_line() -> None:
    assert shown([1, None, "a"]) == '[1, null, "a"]'
    assert len(shown("x" * 1000)) < 100


def test_a_repeated_key_among_many_is_found_at_once() -> None:
    """By a number of steps that grows with the keys, not with their square."""
    names = [f'"{i}":0' for i in range(200_000)]
    data = ("{" + ",".join([*names, '"199999":1']) + "}").encode("ascii")
    with pytest.raises(ConfigError) as refusal:
        parse_object(data, "document", bytes_max=1 << 24, code="config.invalid")
    assert refusal.value.problems[0].value == "199999"
