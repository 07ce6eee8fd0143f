"""A checkpoint's own chat template, run in a sandbox: messages to the text of a prompt.

The template comes with the checkpoint and the messages with the client, so neither is trusted: the
sandbox reaches no attribute that leads out of the data, the output and the number of messages are
bounded, and the time is looked at after every piece of output and in every turn of a `range`. What
is left to a hostile checkpoint: nested loops over the messages, and filters that pad.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from datetime import datetime
from pathlib import Path
from typing import Final, NoReturn

from jinja2 import Template, TemplateError, Undefined
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range

from errors import ConfigError, RequestError
from program.strict_json import parse_object

CONFIG_FILE: Final = "tokenizer_config.json"
TEMPLATE_FILE: Final = "chat_template.jinja"
CONFIG_BYTES_MAX: Final = 16 << 20
TEMPLATE_BYTES_MAX: Final = 1 << 20
REPEATED_MAX: Final = 1 << 16
# For a checkpoint without one.
PLAIN_TEMPLATE: Final = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
_CODE: Final = "config.chat_template"

Message = Mapping[str, str]


class ChatTemplate:
    """source: Jinja. tokens: names and texts of special tokens that the template may use."""

    def __init__(
        self,
        source: str = PLAIN_TEMPLATE,
        tokens: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = dict(tokens or {})
        self._clock = clock
        self._template = _compiled(source)

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """That of chat_template.jinja, else of tokenizer_config.json, else the plain one.

        Raises ConfigError (`config.chat_template`).
        """
        config_data = _read(folder / CONFIG_FILE, CONFIG_BYTES_MAX)
        config: Mapping[str, object] = {}
        if config_data is not None:
            config = parse_object(config_data, CONFIG_FILE, bytes_max=CONFIG_BYTES_MAX, code=_CODE)
        tokens = {}
        for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
            value = config.get(name)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                tokens[name] = text
        data = _read(folder / TEMPLATE_FILE, TEMPLATE_BYTES_MAX)
        source = _of_config(config) if data is None else _utf8(data)
        return cls(PLAIN_TEMPLATE if source is None else source, tokens)

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool,
        arguments: Mapping[str, object],
        seconds: float,
        characters_max: int,
    ) -> str:
        """The prompt's text. Raises RequestError naming `messages`. May take `seconds`."""
        deadline = self._clock() + seconds

        def on_time() -> None:
            if self._clock() > deadline:
                raise _refused(f"must be done within {seconds:g} s")

        def watched_range(*bounds: int) -> Iterator[int]:
            for value in safe_range(*bounds):
                on_time()
                yield value

        variables = {
            **arguments,
            **self._tokens,
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
            "range": watched_range,
        }
        pieces: list[str] = []
        size = 0
        try:
            for piece in self._template.generate(variables):
                pieces.append(piece)
                size += len(piece)
                if size > characters_max:
                    raise _refused(f"must give at most {characters_max} characters")
                on_time()
        except RequestError:
            raise
        # A template may do anything that expressions can: add text to a number, divide by zero,
        # call what is no function, or ask for more memory than is sane.
        except Exception as failure:
            rule = f"can't go through the model's chat template: {failure}"
            raise _refused(rule[:400]) from None
        return "".join(pieces)


class _Environment(ImmutableSandboxedEnvironment):
    """Multiplication can't be used to make a text or a number of any size."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """See `SandboxedEnvironment`."""
        if operator == "**":
            raise SecurityError("powers are not supported")
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Sized) and isinstance(other, int):
                size = len(one) * other
                if size > REPEATED_MAX:
                    raise SecurityError(f"{size} elements are too many")
        return super().call_binop(context, operator, left, right)


def _refused(rule: str) -> RequestError:
    return RequestError("request.template", f"messages: {rule}", param="messages")


def _compiled(source: str) -> Template:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    try:
        return environment.from_string(source)
    except (TemplateError, RecursionError) as failure:
        raise ConfigError.single("chat_template", source[:60], f"{failure}", _CODE) from None


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes for HTML, which a prompt is not."""
    if isinstance(value, Undefined):
        raise TemplateError("a value that is not defined has no JSON")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        allow_nan=False,
    )


def _of_config(config: Mapping[str, object]) -> str | None:
    """A template, or several with names, of which `default` counts."""
    value = config.get("chat_template")
    if isinstance(value, list):
        named = [one for one in value if isinstance(one, dict) and one.get("name") == "default"]
        value = named[0].get("template") if named else None
    if value is None or isinstance(value, str):
        return value
    raise ConfigError.single(CONFIG_FILE, "chat_template", "must be a string", _CODE)


def _utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError.single(TEMPLATE_FILE, "", "must be UTF-8 text", _CODE) from None


def _read(path: Path, bytes_max: int) -> bytes | None:
    """None for a file that is not there."""
    if not path.exists():
        return None
    if not path.is_file():  # a pipe would keep whoever opens it waiting
        raise ConfigError.single(path.name, path, "must be a file", _CODE)
    try:
        if path.stat().st_size > bytes_max:
            raise ConfigError.single(path.name, path, f"must be at most {bytes_max} bytes", _CODE)
        return path.read_bytes()
    except OSError as failure:
        rule = f"can't be read: {failure.strerror}"
        raise ConfigError.single(path.name, path, rule, _CODE) from None
