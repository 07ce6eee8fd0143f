"""Both shapes, with values that JSON can't carry and tokens that are no text."""

from __future__ import annotations

import json
import math

from coordinator.request import Token
from coordinator.serving.api_server import TINY
from coordinator.serving.errors_http import json_bytes
from coordinator.serving.generation import TokenRecord
from coordinator.serving.logprob_shapes import LEAST, chat_logprobs, completion_logprobs
from coordinator.serving.text import ModelText
from program.artifacts import TokenLogprob

TEXT = ModelText.load(TINY)
BYTE = TEXT.encode("😀")[0]
LETTER = TEXT.encode("a")[0]
RECORDS = [
    TokenRecord(
        Token(0, 0, 0, BYTE, -0.25, (TokenLogprob(BYTE, -0.25), TokenLogprob(LETTER, -math.inf))),
        0,
    ),
    TokenRecord(Token(0, 1, 1, LETTER, math.nan, (TokenLogprob(BYTE, -1e308),)), 0),
]


def test_completions() -> None:
    told = completion_logprobs(TEXT, RECORDS)
    assert told == {
        "tokens": ["bytes:\\xf0", "a"],
        "token_logprobs": [-0.25, LEAST],
        # The sampled token is always among them.
        "top_logprobs": [{"bytes:\\xf0": -0.25, "a": LEAST}, {"bytes:\\xf0": LEAST, "a": LEAST}],
        "text_offset": [0, 0],
    }
    assert json.loads(json_bytes(told)) == told


def test_chat() -> None:
    told = chat_logprobs(TEXT, RECORDS)
    byte = {"token": "bytes:\\xf0", "logprob": -0.25, "bytes": [0xF0]}
    letter = {"token": "a", "logprob": LEAST, "bytes": [97]}
    assert told == {
        "content": [
            byte | {"top_logprobs": [byte, letter]},
            letter | {"top_logprobs": [byte | {"logprob": LEAST}]},
        ],
        "refusal": None,
    }
    assert json.loads(json_bytes(told)) == told


def test_tokens_of_the_same_spelling_are_one_entry() -> None:
    top = (TokenLogprob(0, -0.5), TokenLogprob(0, -2.0))
    told = completion_logprobs(TEXT, [TokenRecord(Token(0, 0, 0, LETTER, -1.0, top), 0)])
    assert told["top_logprobs"] == [{"<|endoftext|>": -0.5, "a": -1.0}]
