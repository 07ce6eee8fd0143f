"""Log-probabilities in the two shapes of the public interfaces.

Every sampled token has an entry, also the one that ended the request, and one that a stop string
cut off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from coordinator.serving.generation import TokenRecord
from coordinator.serving.text import ModelText

# JSON has no infinity; this is what public services say instead.
LEAST: Final = -9999.0


def completion_logprobs(text: ModelText, records: Sequence[TokenRecord]) -> dict[str, object]:
    """Parallel arrays. Alternatives of the same spelling are one entry, the likeliest."""
    tops: list[dict[str, float]] = []
    for record in records:
        top: dict[str, float] = {}
        for entry in record.token.top:
            top.setdefault(text.name(entry.token_id), _finite(entry.logprob))
        own = text.name(record.token.token_id)
        top.setdefault(own, _finite(record.token.logprob))
        tops.append(top)
    return {
        "tokens": [text.name(record.token.token_id) for record in records],
        "token_logprobs": [_finite(record.token.logprob) for record in records],
        "top_logprobs": tops,
        "text_offset": [record.text_offset for record in records],
    }


def chat_logprobs(text: ModelText, records: Iterable[TokenRecord]) -> dict[str, object]:
    """One object per token."""
    content = []
    for record in records:
        token = record.token
        entry = _chat_entry(text, token.token_id, token.logprob)
        entry["top_logprobs"] = [_chat_entry(text, one.token_id, one.logprob) for one in token.top]
        content.append(entry)
    return {"content": content, "refusal": None}


def _chat_entry(text: ModelText, token_id: int, logprob: float | None) -> dict[str, object]:
    return {
        "token": text.name(token_id),
        "logprob": _finite(logprob),
        "bytes": list(text.token_bytes(token_id)),
    }


def _finite(logprob: float | None) -> float:
    if logprob is None or not math.isfinite(logprob):
        return LEAST
    return max(logprob, LEAST)
