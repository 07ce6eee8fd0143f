"""Parameters of the public interfaces that have one meaning here: the neutral one.

Clients and their libraries send them by habit. A value that asks for nothing is accepted; any other
is refused with the reason, because an ignored parameter is a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coordinator.serving.fields import Fields, unsupported


@dataclass(frozen=True, slots=True)
class Neutral:
    """holds: whether a value asks for nothing. rule: why another one is refused."""

    holds: Callable[[object], bool]
    rule: str


def _only(value: object, rule: str) -> Neutral:
    return Neutral(lambda given: type(given) is type(value) and given == value, rule)


def _one_of(*values: object, rule: str) -> Neutral:
    return Neutral(
        lambda given: any(type(given) is type(one) and given == one for one in values), rule
    )


_NO_TOOLS: Final = "is not supported: no tool calls are read from the model's text"
_ONE_CHOICE: Final = "must be 1: one answer per prompt; send the prompt several times instead"
_TEXT_ONLY: Final = "must be text: the answer's form is not constrained"
_STATELESS: Final = "is not supported: nothing is kept after the answer"
_NOT_THIS_MODEL: Final = "is not supported: the model's chat template decides"

COMMON: Final = {
    "n": _only(1, _ONE_CHOICE),
    # Names the client's own user; there is nothing that it could change.
    "user": Neutral(lambda value: isinstance(value, str), "must be a string"),
}
COMPLETION: Final = COMMON | {
    "best_of": _only(1, _ONE_CHOICE),
    "suffix": _only("", "is not supported: the model continues text and does not fill gaps"),
}
CHAT: Final = COMMON | {
    "audio": Neutral(lambda value: False, "is not supported: the model gives text"),
    "function_call": _only("none", _NO_TOOLS),
    "functions": _only([], _NO_TOOLS),
    "metadata": _only({}, _STATELESS),
    "modalities": _only(["text"], 'must be ["text"]: the model gives text'),
    "parallel_tool_calls": Neutral(lambda value: type(value) is bool, "must be true or false"),
    "prediction": Neutral(lambda value: False, "is not supported: no text is predicted"),
    "reasoning_effort": Neutral(lambda value: False, _NOT_THIS_MODEL),
    "response_format": _only({"type": "text"}, _TEXT_ONLY),
    "service_tier": _one_of("auto", "default", rule="must be auto: there is one tier"),
    "store": _only(False, _STATELESS),
    "tool_choice": _one_of("none", "auto", rule=_NO_TOOLS),
    "tools": _only([], _NO_TOOLS),
    "verbosity": Neutral(lambda value: False, _NOT_THIS_MODEL),
    "web_search_options": Neutral(lambda value: False, "is not supported: nothing is looked up"),
}


def take_neutral(fields: Fields, table: dict[str, Neutral]) -> None:
    """Raises RequestError `request.unsupported` naming the first that asks for something."""
    for name, neutral in table.items():
        value = fields.take(name)
        if value is not None and not neutral.holds(value):
            raise unsupported(name, neutral.rule)
