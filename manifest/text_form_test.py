"""The text reader: any bytes give settings and problems, or a ConfigError, and nothing else.

What it accepts without a problem, protobuf's own parser reads as the same values.
"""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from errors import ConfigError
from manifest import run_manifest_pb2
from manifest.fields import FIELDS, GROUPS, Settings, group_of
from manifest.text_form import TEXT_BYTES_MAX, read_settings

TOKENS = [field.path.rpartition(".")[2] for field in FIELDS] + list(GROUPS)
TOKENS += [":", "{", "}", "<", ">", "[", "]", ",", ";", "\n", "# c\n", "'a'", '"unix:/s"', "'"]
TOKENS += ["0", "4", "-1", "1e3", "0x10", "010", "true", "t", "'block'", '"\\x"', "\\", "/"]
FOUR_FIELDS: Settings = {"ranks": 2, "batch": 1, "sequence": 4, "seed": 0}


def protobuf_settings(data: bytes) -> Settings:
    """What protobuf's own parser makes of `data`."""
    message = text_format.Parse(data.decode("utf-8"), run_manifest_pb2.RunManifest())
    settings: Settings = {}
    for field in FIELDS:
        group = group_of(field.path)
        if group and not message.HasField(group):
            continue
        holder = getattr(message, group) if group else message
        name = field.path.removeprefix(group + ".")
        value = getattr(holder, name)
        if not isinstance(value, (int, str, bool)):
            if len(value):
                settings[field.path] = tuple(value)
        elif holder.HasField(name):
            settings[field.path] = value
    return settings


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("# nothing\n\n", {}),
        ("ranks: 2", {"ranks": 2}),
        ("ranks: 2, batch: 1; sequence: 4\nseed: 0", FOUR_FIELDS),
        ("listen: 'unix:' \"/tmp/s\"", {"listen": "unix:/tmp/s"}),
        ("external_workers: true", {"external_workers": True}),
        ("deadlines { load_ms: 5 }", {"deadlines.load_ms": 5}),
        ("deadlines: < load_ms: 5 >", {"deadlines.load_ms": 5}),
        ("model { device_ordinals: [1, 0] }", {"model.device_ordinals": (1, 0)}),
        ("model { device_ordinals: 1 device_ordinals: 0 }", {"model.device_ordinals": (1, 0)}),
        ("model { device_ordinals: [] }", {"model.device_ordinals": ()}),
        ("model { checkpoint: '\\303\\251' }", {"model.checkpoint": "\u00e9"}),
    ],
)
def test_accepted_texts(text: str, settings: Settings) -> None:
    assert read_settings(text.encode()) == (settings, [], frozenset())


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("rank: 2", "rank"),
        ("a: { b: 1 c { d: [1, 'x'] } }", "a"),
        ("a { <> }", "a"),
        ("ranks: '2'", "ranks"),
        ("ranks: true", "ranks"),
        ("ranks: 1e3", "ranks"),
        ("ranks: 0x4", "ranks"),
        ("ranks: 04", "ranks"),
        ("ranks: 4.0", "ranks"),
        ("ranks: [4]", "ranks"),
        ("ranks { }", "ranks"),
        ("ranks: 4 ranks: 4", "ranks"),
        ("program: block", "program"),
        ("external_workers: 1", "external_workers"),
        ("external_workers: t", "external_workers"),
        ("external_workers: 'true'", "external_workers"),
        ("deadlines: 5", "deadlines"),
        ("deadlines { }", "deadlines"),
        ("deadlines { load_ms: 5 } deadlines { send_ms: 5 }", "deadlines"),
        ("deadlines { load: 5 }", "deadlines.load"),
        ("deadlines { deadlines { load_ms: 5 } }", "deadlines.deadlines"),
        ("load_ms: 5", "load_ms"),
        ("model { device_ordinals: ['1'] }", "model.device_ordinals"),
        ("\u00e9: 1", "\\xe9"),
    ],
)
def test_problems_name_the_path_and_reading_goes_on(text: str, field: str) -> None:
    settings, problems, unreadable = read_settings(f"{text}\nseed: 9".encode())
    assert [problem.field for problem in problems] == [field]
    assert settings["seed"] == 9
    assert len(unreadable) == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ranks", 1),
        ("ranks 4", 1),
        ("ranks:", 1),
        ("\n\nranks: }", 3),
        ("seed: 1\n: 4", 2),
        ("deadlines {\nload_ms: 4", 2),
        ("deadlines { load_ms: 4 >", 1),
        ("unknown { a: 1 ] ", 1),
        ("unknown { a < } >", 1),
        ("seed: 1 }", 1),
        ("listen: 'open\nseed: 1", 1),
        ("listen: '\\xff'", 1),
        ("model { device_ordinals: [1 2] }", 1),
        ("[a.b]: 1", 1),
        ("{" * 5_000, 1),
        ("seed: 1\n\x00", 2),
    ],
)
def test_a_broken_structure_is_one_problem_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ConfigError) as refused:
        read_settings(text.encode())
    assert refused.value.code == "config.syntax"
    assert [problem.field for problem in refused.value.problems] == [f"manifest line {line}"]


@pytest.mark.parametrize("data", [b"\xff", b"listen: '\xed\xa0\x80'", b" " * (TEXT_BYTES_MAX + 1)])
def test_bytes_that_are_not_a_bounded_text(data: bytes) -> None:
    with pytest.raises(ConfigError) as refused:
        read_settings(data)
    assert refused.value.code == "config.invalid"


def test_deep_nesting_is_no_recursion() -> None:
    depth = TEXT_BYTES_MAX // 4
    settings, problems, _ = read_settings(b"a{" * depth + b"}" * depth)
    assert (settings, len(problems)) == ({}, 1)


def check_against_protobuf(data: bytes) -> None:
    try:
        settings, problems, _ = read_settings(data)
    except ConfigError:
        return
    if not problems and all(-1 < v < 1 << 32 for v in settings.values() if isinstance(v, int)):
        expected = {path: value for path, value in settings.items() if value != ()}
        assert protobuf_settings(data) == expected


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    check_against_protobuf(data)


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    check_against_protobuf(text.encode("utf-8", "surrogatepass"))


@given(st.lists(st.sampled_from(TOKENS), max_size=40))
def test_any_tokens(tokens: list[str]) -> None:
    check_against_protobuf(" ".join(tokens).encode())
