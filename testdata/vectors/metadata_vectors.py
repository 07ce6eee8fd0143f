"""Vectors of docs/spec/metadata.md: spelling (M1), keys and types (M2, M3), agreement (M5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from testdata.vectors.vector_file import VectorFile, canonical

NOTES = {
    "DuplicateKey": "Two parsers that keep different values of one key.",
    "Escapes": "Strings that several spellings can write.",
    "ExactKeys": "A missing key that gets a default, or an extra key that is ignored.",
    "ExactTypes": "A value of another type that a dynamic language takes for the right one.",
    "HostileNesting": "Recursion that overflows the stack of a parser.",
    "HostileNumber": "Conversion of digits in quadratic time, or a number that loses bits.",
    "NotJson": "Leniency beyond JSON.",
    "Order": "Keys sorted by something else than code points.",
    "Shape": "Metadata as the protocol sends it.",
    "ShapeArithmetic": "A product computed with overflow, or compared before it is bounded (M3).",
    "Whitespace": "Space that a parser skips.",
}
DIGEST = "0123456789abcdef" * 4
TENSOR = {"dtype": "<f4", "phase": "mlp", "rank": 1, "shape": [2, 7, 16], "tensor": "mlp.total"}
GOOD: dict[str, dict[str, Any]] = {
    "HELLO": {"byte_order": "little", "dtype": "<f4", "rank": 0},
    "ACK": {
        "parameters": {},
        "program": "block",
        "program_digest": DIGEST,
        "rank": 1,
        "world_size": 2,
    },
    "WEIGHT": TENSOR | {"phase": "load", "shape": [48, 16], "tensor": "q_proj"},
    "LOAD": {"parameters": {"artifact": "tiny"}, "phase": "load", "rank": 0},
    "INPUT": TENSOR | {"phase": "input", "tensor": "x"},
    "COMMAND": {"phase": "attention", "plan": None, "rank": 0, "step": 0},
    "PARTIAL": TENSOR | {"tensor": "mlp.partial"},
    "FENCE": {"phase": "attention", "rank": 0, "report": None, "tensors": 1},
    "REDUCTION": TENSOR,
    "RESULT": TENSOR | {"phase": "result", "report": None, "step": 3, "tensor": "y"},
}
MALFORMED, OTHER, CONTRACT = "protocol.malformed", "protocol.not_canonical", "contract.metadata"


def metadata_vectors() -> VectorFile:
    """All of them, numbered in order."""
    vectors = [*_spelling(), *_keys(), *_values(), *_payloads(), *_agreement(), *_plans()]
    return VectorFile(
        "rule spelling: is `data` canonical. rule keys: is it legal metadata of `kind`. rule "
        "payload: does a payload of `payload_bytes` fit it. rule agreement: is it what was agreed; "
        "`differs` is the key to be named.",
        NOTES,
        [{"id": f"metadata-{at:03}", **vector} for at, vector in enumerate(vectors, 1)],
    )


def _vector(
    rule: str, comment: str, flag: str, data: bytes, code: str | None, **more: Any
) -> dict[str, Any]:
    return {
        "rule": rule,
        "comment": comment,
        "flags": [flag],
        "data": data.hex(),
        **more,
        "result": "valid" if code is None else "invalid",
        "code": code,
    }


def _nested(levels: int) -> bytes:
    """An object with arrays in it, `levels` deep in all."""
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def _spelling() -> Iterator[dict[str, Any]]:
    top = 2**53 - 1
    yield from (
        _vector("spelling", comment, flag, data, None)
        for comment, flag, data in (
            ("the empty object", "Shape", b"{}"),
            (
                "every kind of value",
                "Shape",
                b'{"a":null,"b":true,"c":false,"d":[1],"e":{},"f":""}',
            ),
            ("largest integers", "HostileNumber", canonical({"a": top, "b": -top})),
            ("keys by code point, not by alphabet", "Order", b'{"B":0,"_":0,"a":0}'),
            ("a short key before its extension", "Order", b'{"a":0,"a.b":0,"ab":0}'),
            (
                "keys by code point, not by UTF-16 unit",
                "Order",
                b'{"\\uff5a":0,"\\ud83d\\ude00":0}',
            ),
            ("the short escapes", "Escapes", b'{"a":"\\"\\\\\\b\\f\\n\\r\\t"}'),
            ("a control character", "Escapes", b'{"a":"\\u0000\\u001f"}'),
            ("delete is escaped, a solidus is not", "Escapes", b'{"a":"\\u007f/"}'),
            ("a pair of surrogates", "Escapes", b'{"a":"\\ud83d\\ude00"}'),
            ("an escaped backslash before ud800", "Escapes", b'{"a":"\\\\ud800"}'),
            ("8 levels", "HostileNesting", _nested(8)),
            ("brackets in strings are no levels", "HostileNesting", b'{"a":"[[[[[[[[[{{{{"}'),
            ("a bracket behind an escaped quote", "HostileNesting", b'{"a":"\\"[[[[[[[[["}'),
        )
    )
    yield from _not_canonical()
    yield from _malformed()


def _not_canonical() -> Iterator[dict[str, Any]]:
    for comment, flag, data in (
        ("a space after the colon", "Whitespace", b'{"a": 0}'),
        ("a space after the comma", "Whitespace", b'{"a":0, "b":0}'),
        ("a space before", "Whitespace", b" {}"),
        ("a line feed after", "Whitespace", b"{}\n"),
        ("a tab inside", "Whitespace", b"{\t}"),
        ("unsorted keys", "Order", b'{"b":0,"a":0}'),
        ("unsorted keys in a nested object", "Order", b'{"a":{"d":0,"c":0}}'),
        ("keys sorted by UTF-16 unit", "Order", b'{"\\ud83d\\ude00":0,"\\uff5a":0}'),
        ("a key twice, equal values", "DuplicateKey", b'{"a":0,"a":0}'),
        ("a key twice, other values", "DuplicateKey", b'{"a":0,"a":1}'),
        ("a key twice, one escaped", "DuplicateKey", b'{"a":0,"\\u0061":0}'),
        ("a nested key twice", "DuplicateKey", b'{"a":{"b":0,"b":0}}'),
        ("an escaped letter", "Escapes", b'{"a":"\\u0061"}'),
        ("an escaped solidus", "Escapes", b'{"a":"\\/"}'),
        ("upper-case hex digits", "Escapes", b'{"a":"\\u00E9"}'),
        ("a long form of a short escape", "Escapes", b'{"a":"\\u000a"}'),
        ("a raw delete", "Escapes", b'{"a":"\x7f"}'),
    ):
        yield _vector("spelling", comment, flag, data, OTHER)


def _malformed() -> Iterator[dict[str, Any]]:
    for comment, flag, data in (
        ("nothing", "NotJson", b""),
        ("a string", "NotJson", b'"a"'),
        ("null", "NotJson", b"null"),
        ("an array", "NotJson", b"[]"),
        ("two objects", "NotJson", b"{}{}"),
        ("not closed", "NotJson", b'{"a":0'),
        ("a trailing comma", "NotJson", b'{"a":0,}'),
        ("single quotes", "NotJson", b"{'a':0}"),
        ("a comment", "NotJson", b"{}//"),
        ("a bare key", "NotJson", b"{a:0}"),
        ("a raw control character", "NotJson", b'{"a":"\n"}'),
        ("a zero byte after", "NotJson", b"{}\0"),
        ("a byte order mark", "NotJson", b"\xef\xbb\xbf{}"),
        ("UTF-16", "NotJson", "{}".encode("utf-16-le")),
        ("a character beyond ASCII", "NotJson", '{"a":"\u00e9"}'.encode()),
        ("a byte that is no UTF-8", "NotJson", b'{"a":"\xff"}'),
        ("True", "NotJson", b'{"a":True}'),
        ("NaN", "NotJson", b'{"a":NaN}'),
        ("Infinity", "NotJson", b'{"a":-Infinity}'),
        ("a bad escape", "Escapes", b'{"a":"\\x41"}'),
        ("a cut escape", "Escapes", b'{"a":"\\u12"}'),
        ("a lone high surrogate", "Escapes", b'{"a":"\\ud800"}'),
        ("a lone low surrogate", "Escapes", b'{"a":"\\udc00"}'),
        ("surrogates in the wrong order", "Escapes", b'{"a":"\\ude00\\ud83d"}'),
        ("a lone surrogate as a key", "Escapes", b'{"\\udfff":0}'),
        ("a float", "HostileNumber", b'{"a":1.5}'),
        ("a whole float", "HostileNumber", b'{"a":1.0}'),
        ("an exponent", "HostileNumber", b'{"a":1e3}'),
        ("minus zero", "HostileNumber", b'{"a":-0}'),
        ("a leading zero", "HostileNumber", b'{"a":01}'),
        ("a plus sign", "HostileNumber", b'{"a":+1}'),
        ("2^53", "HostileNumber", b'{"a":9007199254740992}'),
        ("-2^53", "HostileNumber", b'{"a":-9007199254740992}'),
        ("5,000 digits", "HostileNumber", b'{"a":' + b"9" * 5000 + b"}"),
        ("9 levels", "HostileNesting", _nested(9)),
        ("9 levels of objects", "HostileNesting", b'{"a":' * 9 + b"0" + b"}" * 9),
        ("2,000 levels", "HostileNesting", _nested(2000)),
        ("2,000 levels, never closed", "HostileNesting", b'{"a":' + b"[" * 2000),
        ("a float that a duplicate hides", "DuplicateKey", b'{"a":1.5,"a":1}'),
        ("nesting that a duplicate hides", "DuplicateKey", b'{"a":[[[[[[[[]]]]]]]],"a":1}'),
        ("a surrogate that a duplicate hides", "DuplicateKey", b'{"a":"\\ud800","a":1}'),
    ):
        yield _vector("spelling", comment, flag, data, MALFORMED)


def _keys() -> Iterator[dict[str, Any]]:
    for kind, good in GOOD.items():
        yield _vector("keys", f"{kind}", "Shape", canonical(good), None, kind=kind)
        for key in good:
            rest = {name: value for name, value in good.items() if name != key}
            yield _keys_vector(f"{kind} without {key}", "ExactKeys", kind, rest)
        yield _keys_vector(f"{kind} with one key more", "ExactKeys", kind, good | {"x": None})
        yield _keys_vector(f"{kind} with a key in capitals", "ExactKeys", kind, good | {"RANK": 0})
    yield _keys_vector("no keys at all", "ExactKeys", "HELLO", {})


def _keys_vector(
    comment: str, flag: str, kind: str, value: dict[str, Any], code: str | None = CONTRACT
) -> dict[str, Any]:
    return _vector("keys", comment, flag, canonical(value), code, kind=kind)


def _plans() -> Iterator[dict[str, Any]]:
    """The two frames of a planned program's agreement (session.md S15)."""
    command = GOOD["COMMAND"] | {"phase": "plan", "plan": {"rows": [], "step": 4}, "step": 4}
    fence = GOOD["FENCE"] | {"phase": "plan", "report": {"plan_digest": DIGEST}, "tensors": 0}
    yield _keys_vector("COMMAND with a plan", "Shape", "COMMAND", command, None)
    yield _keys_vector("FENCE for a plan", "Shape", "FENCE", fence, None)


# Key -> values that no kind with this key may carry there.
WRONG: dict[str, tuple[Any, ...]] = {
    "byte_order": (None, 0, "x" * 257),
    "dtype": (None, 4, ["<f4"]),
    "parameters": (None, [], "{}"),
    "phase": (None, 0, ["mlp"], "x" * 257),
    "plan": (0, "", [], False),
    "program": (None, 1),
    "program_digest": (None, "", DIGEST[1:], DIGEST + "0", DIGEST.upper(), "g" + DIGEST[1:]),
    "rank": (None, "0", True, -1, [0]),
    "report": (0, "", [], False),
    "shape": (None, 16, "16", [], [1, 1, 1, 1, 1], [-1], [True], [[1]], [None], {"0": 1}),
    "step": (None, "0", False, -1),
    "tensor": (None, 0, ["x"], "x" * 257),
    "tensors": (None, "1", True, -1),
    "world_size": (None, "2", True, 0, -2),
}


def _values() -> Iterator[dict[str, Any]]:
    for kind, good in GOOD.items():
        for key in good:
            for wrong in WRONG[key]:
                shown = json.dumps(wrong)
                comment = f"{kind} with {key} = {shown[:40]}"
                yield _keys_vector(comment, "ExactTypes", kind, good | {key: wrong})
        if "shape" in good:
            code = None if kind == "RESULT" else CONTRACT
            comment = f"{kind} with no elements"
            yield _keys_vector(comment, "ExactTypes", kind, good | {"shape": [0, 4]}, code)
            for dtype in ("<f2", "<F4", ">f4", "float32", ""):
                comment = f"{kind} with dtype {dtype!r}"
                yield _keys_vector(comment, "ExactTypes", kind, good | {"dtype": dtype})
    full = GOOD["COMMAND"] | {"phase": "x" * 256, "plan": {"rows": [[1, 2]]}}
    yield _keys_vector("a phase of 256 characters and a plan", "Shape", "COMMAND", full, None)
    report = GOOD["RESULT"] | {"report": {"digest": DIGEST}, "shape": [4], "dtype": "<f8"}
    yield _keys_vector("a float64 RESULT with a report", "Shape", "RESULT", report, None)


def _payloads() -> Iterator[dict[str, Any]]:
    for comment, kind, keys, size, fits in (
        ("896 bytes of [2, 7, 16]", "PARTIAL", {}, 896, True),
        ("one element short", "PARTIAL", {}, 892, False),
        ("one byte short", "PARTIAL", {}, 895, False),
        ("one byte more", "PARTIAL", {}, 897, False),
        ("nothing", "PARTIAL", {}, 0, False),
        ("float64 doubles it", "PARTIAL", {"dtype": "<f8"}, 1792, True),
        ("float64 with the bytes of float32", "PARTIAL", {"dtype": "<f8"}, 896, False),
        ("an empty RESULT", "RESULT", {"shape": [0, 16]}, 0, True),
        ("an empty RESULT with a payload", "RESULT", {"shape": [0, 16]}, 4, False),
        ("a product of 2^62", "INPUT", {"shape": [2**31, 2**31]}, 0, False),
        ("a product of 2^62 + 1", "INPUT", {"shape": [2147418113, 2147549185]}, 4, False),
        ("a product of 2^30 + 2", "INPUT", {"shape": [2, 536870913]}, 8, False),
    ):
        value = GOOD[kind] | keys
        code = None if fits else CONTRACT
        data = canonical(value)
        yield _vector(
            "payload", comment, "ShapeArithmetic", data, code, kind=kind, payload_bytes=size
        )


def _agreement() -> Iterator[dict[str, Any]]:
    agreed = GOOD["REDUCTION"]
    for comment, flag, received, key in (
        ("the same", "Shape", agreed, None),
        ("another rank", "Shape", agreed | {"rank": 0}, "rank"),
        ("another phase", "Shape", agreed | {"phase": "attention"}, "phase"),
        ("another shape of the same size", "Shape", agreed | {"shape": [7, 2, 16]}, "shape"),
        ("another tensor and rank", "Order", agreed | {"rank": 0, "tensor": "a"}, "rank"),
        ("one key more", "ExactKeys", agreed | {"a": 0}, "a"),
        ("a key instead of another", "ExactKeys", _renamed(agreed, "phase", "stage"), "phase"),
        ("true for 1", "ExactTypes", agreed | {"rank": True}, "rank"),
        ("true for 1 inside", "ExactTypes", agreed | {"shape": [2, 7, True]}, "shape"),
        ("null for absent", "ExactTypes", agreed | {"report": None}, "report"),
    ):
        code = None if key is None else CONTRACT
        data, demanded = canonical(received), canonical(agreed)
        yield _vector("agreement", comment, flag, data, code, agreed=demanded.hex(), differs=key)


def _renamed(value: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if key == old else key: item for key, item in value.items()}
