"""Answers and chunks of completions and chat completions, as the public interfaces have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from coordinator.serving.choice import Choice
from coordinator.serving.errors_http import json_bytes
from coordinator.serving.generation import Delta, TokenRecord
from coordinator.serving.logprob_shapes import chat_logprobs, completion_logprobs
from coordinator.serving.text import ModelText

Json = dict[str, object]


class Shape(Protocol):
    """What differs between the two. The values of `answer_object` and `chunk_object` are names."""

    @property
    def id_prefix(self) -> str: ...

    @property
    def answer_object(self) -> str: ...

    @property
    def chunk_object(self) -> str: ...

    def whole(self, choice: Choice) -> Json:
        """A choice of an answer."""

    def opening(self, choice: Choice) -> Json | None:
        """A choice of the first chunk, if there is something to say before any text."""

    def piece(self, choice: Choice, delta: Delta) -> Json:
        """A choice of a chunk with text."""

    def end(self, choice: Choice) -> Json:
        """A choice of the chunk with the finish reason."""


class CompletionShape:
    """POST /v1/completions."""

    id_prefix = "cmpl-"
    answer_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, text: ModelText) -> None:
        self._text = text

    def whole(self, choice: Choice) -> Json:
        generation = choice.generation
        told = self._choice(choice, generation.text, generation.records)
        told["finish_reason"] = generation.finish_reason
        return told

    def opening(self, choice: Choice) -> Json | None:
        return None

    def piece(self, choice: Choice, delta: Delta) -> Json:
        return self._choice(choice, delta.text, delta.records)

    def end(self, choice: Choice) -> Json:
        return self._choice(choice, "", ()) | {"finish_reason": choice.generation.finish_reason}

    def _choice(self, choice: Choice, text: str, records: Sequence[TokenRecord]) -> Json:
        return {
            "index": choice.index,
            "text": text,
            "logprobs": completion_logprobs(self._text, records) if records else None,
            "finish_reason": None,
        }


class ChatShape:
    """POST /v1/chat/completions."""

    id_prefix = "chatcmpl-"
    answer_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, text: ModelText) -> None:
        self._text = text

    def whole(self, choice: Choice) -> Json:
        generation = choice.generation
        records = generation.records
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": generation.text, "refusal": None},
            "logprobs": chat_logprobs(self._text, records) if records else None,
            "finish_reason": generation.finish_reason,
        }

    def opening(self, choice: Choice) -> Json | None:
        return self._chunk(choice, {"role": "assistant", "content": ""})

    def piece(self, choice: Choice, delta: Delta) -> Json:
        told = self._chunk(choice, {"content": delta.text})
        if delta.records:
            told["logprobs"] = chat_logprobs(self._text, delta.records)
        return told

    def end(self, choice: Choice) -> Json:
        return self._chunk(choice, {}) | {"finish_reason": choice.generation.finish_reason}

    def _chunk(self, choice: Choice, delta: Json) -> Json:
        return {"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": None}


def usage(choices: Sequence[Choice]) -> Json:
    """Token counts of a whole body. The token that ended a request is counted."""
    prompt = sum(choice.prompt_tokens for choice in choices)
    completion = sum(choice.generation.completion_tokens for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


class Chunks:
    """The lines of one stream. What is the same in every chunk is encoded once."""

    def __init__(self, common: Json, *, include_usage: bool) -> None:
        self._head = b"data: " + json_bytes(common)[:-1] + b',"choices":'
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"

    def chunk(self, choice: Json) -> bytes:
        return self._head + json_bytes([choice]) + self._tail

    def around(self, piece: Callable[[str], Json]) -> tuple[bytes, bytes]:
        """What stands before and after the text's JSON in `chunk(piece(text))`, for any text."""
        some, other = self.chunk(piece("a")), self.chunk(piece("b"))
        at = next(at for at, (one, two) in enumerate(zip(some, other, strict=True)) if one != two)
        # Before and after the one character are its quotes.
        return some[: at - 1], some[at + 2 :]

    def timed_chunk(self, choice: Json, timings: Json) -> bytes:
        told = json_bytes(timings)
        return self._head + json_bytes([choice]) + b',"timings":' + told + self._tail

    def usage_chunk(self, counts: Json) -> bytes:
        return self._head + b'[],"usage":' + json_bytes(counts) + b"}\n\n"


DONE = b"data: [DONE]\n\n"


def error_event(error: Json) -> bytes:
    """Instead of `DONE`: the answer is not complete."""
    return b"data: " + json_bytes(error) + b"\n\n"
