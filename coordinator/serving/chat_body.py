"""The body of POST /v1/chat/completions, and of /tokenize with messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from coordinator.serving.chat_template import Message
from coordinator.serving.fields import (
    Fields,
    missing,
    out_of_range,
    sound_text,
    unsupported,
    wrong_type,
)
from coordinator.serving.neutral_parameters import CHAT, take_neutral
from coordinator.serving.parameters import Common, take_common, take_model
from coordinator.submission import LOGPROBS_MAX
from program.plan import PlanLimits

# Where a body names no number of new tokens: a limit, because a request holds its pages for life.
DEFAULT_TOKENS: Final = 1024
MESSAGES_MAX: Final = 1024
PARTS_MAX: Final = 256
TEMPLATE_ARGUMENTS_MAX: Final = 32
# `developer` is the newer name of `system`; templates know the older one.
ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
# Of an assistant's message that a client gives back as it came.
_EMPTY_KEYS: Final = ("annotations", "audio", "function_call", "refusal", "tool_calls")


@dataclass(frozen=True, slots=True)
class Conversation:
    """arguments: what a client gives to the template beside the messages."""

    messages: tuple[Message, ...]
    add_generation_prompt: bool
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ChatBody:
    conversation: Conversation
    common: Common


def parse_chat(body: Mapping[str, object], model_id: str, limits: PlanLimits) -> ChatBody:
    """Raises RequestError naming the parameter."""
    fields = Fields(body)
    take_model(fields, model_id)
    conversation = take_conversation(fields)
    take_neutral(fields, CHAT)
    common = take_common(fields, limits, _logprobs(fields))
    fields.end()
    return ChatBody(conversation, common)


def take_conversation(fields: Fields) -> Conversation:
    """`messages`, `add_generation_prompt` (default true) and `chat_template_kwargs`."""
    given = fields.array("messages", MESSAGES_MAX)
    if not given:
        raise missing("messages")
    messages = tuple(_message(one, f"messages[{place}]") for place, one in enumerate(given))
    prompt = fields.take("add_generation_prompt")
    if prompt is not None and type(prompt) is not bool:
        raise wrong_type("add_generation_prompt", prompt, "must be true or false")
    return Conversation(messages, prompt is not False, _arguments(fields))


def _logprobs(fields: Fields) -> int | None:
    wanted = fields.boolean("logprobs")
    top = fields.integer("top_logprobs", 0, LOGPROBS_MAX)
    if top is not None and not wanted:
        raise unsupported("top_logprobs", "must be given with logprobs = true only")
    return (top or 0) if wanted else None


def _message(value: object, name: str) -> Message:
    if not isinstance(value, dict):
        raise wrong_type(name, value, "must be an object")
    fields = Fields(value, name)
    role = fields.text("role")
    if role is None:
        raise missing(f"{name}.role")
    if role not in ROLES:
        raise out_of_range(f"{name}.role", role, f"must be one of {', '.join(ROLES)}")
    message = {"role": ROLES[role], "content": _content(fields)}
    author = fields.text("name")
    if author is not None:
        message["name"] = author
    for key in _EMPTY_KEYS:
        if fields.take(key) not in (None, "", []):
            raise unsupported(fields.name(key), "is not supported: messages are text")
    fields.end()
    return message


def _content(fields: Fields) -> str:
    """A string, or text parts, which are joined by line feeds."""
    value = fields.take("content")
    name = fields.name("content")
    if value is None:
        raise missing(name)
    if isinstance(value, str):
        return sound_text(name, value)
    if not isinstance(value, list):
        raise wrong_type(name, value, "must be a string or an array of text parts")
    if len(value) > PARTS_MAX:
        raise out_of_range(name, len(value), f"must have at most {PARTS_MAX} parts")
    return "\n".join(_part(part, f"{name}[{place}]") for place, part in enumerate(value))


def _part(value: object, name: str) -> str:
    if not isinstance(value, dict):
        raise wrong_type(name, value, "must be an object")
    fields = Fields(value, name)
    kind = fields.text("type")
    if kind != "text":
        raise unsupported(f"{name}.type", "must be text: the model reads nothing else")
    text = fields.text("text")
    if text is None:
        raise missing(f"{name}.text")
    fields.end()
    return text


def _arguments(fields: Fields) -> Mapping[str, object]:
    """Switches of the template, such as `enable_thinking`."""
    name = "chat_template_kwargs"
    value = fields.take(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong_type(name, value, "must be an object")
    if len(value) > TEMPLATE_ARGUMENTS_MAX:
        rule = f"must have at most {TEMPLATE_ARGUMENTS_MAX} entries"
        raise out_of_range(name, len(value), rule)
    own = Fields(value, name)
    for key in ("messages", "add_generation_prompt", "tools", "documents"):
        if own.take(key) is not None:
            raise unsupported(f"{name}.{key}", "is no switch of the template")
    for key, one in value.items():
        if not isinstance(one, str | int | float):
            raise wrong_type(f"{name}.{key[:60]}", one, "must be a text, a number or true or false")
    return value
