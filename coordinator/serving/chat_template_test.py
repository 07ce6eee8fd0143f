"""Templates of checkpoints: what they may use, and what they can't do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coordinator.serving.chat_template import CONFIG_FILE, TEMPLATE_FILE, ChatTemplate
from errors import ConfigError, RequestError

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<hi> & {{1}}"}]
CHATML = (
    "{%- for message in messages %}\n"
    "    {%- if message.role == 'tool' %}\n"
    "        {{- raise_exception('no tools') }}\n"
    "    {%- endif %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}\n"
    "    {%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}\n"
    "{%- endif %}"
)


def rendered(template: ChatTemplate, prompt: bool = True, **arguments: object) -> str:
    return template.render(
        MESSAGES,
        add_generation_prompt=prompt,
        arguments=arguments,
        seconds=5.0,
        characters_max=10_000,
    )


def refused(source: str) -> None:
    with pytest.raises(RequestError) as refusal:
        rendered(ChatTemplate(source))
    assert (refusal.value.code, refusal.value.param) == ("request.template", "messages")


def test_the_plain_one() -> None:
    assert rendered(ChatTemplate()) == "system: Be brief.\nuser: <hi> & {{1}}\nassistant:"
    assert rendered(ChatTemplate(), prompt=False) == "system: Be brief.\nuser: <hi> & {{1}}\n"


def test_one_like_those_of_checkpoints() -> None:
    text = rendered(ChatTemplate(CHATML), enable_thinking=False)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<hi> & {{1}}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_what_templates_use() -> None:
    source = "{{ eos_token }}{{ messages[0].content | tojson }}{% for m in messages %}{% break %}x"
    template = ChatTemplate(source + "{% endfor %}{{ strftime_now('%%') }}", {"eos_token": "<e>"})
    assert rendered(template) == '<e>"Be brief."%'


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('these roles do not alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[9].content.x }}",
        "{{ 1 / 0 }}",
        "{{ nothing() }}",
        "{{ nothing | tojson }}",
        "{{ messages.append(1) }}",
        "{{ ().__class__.__base__.__subclasses__() }}",
        "{{ messages[0].__class__.__mro__[1] }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ 'x' * 100000000000 }}",
        "{% set list = 99999 * [1] %}",
        "{% set text = 'x' * 99999 %}",
        "{{ 9 ** 999999999 }}",
        "{% for i in range(1000000000) %}{% endfor %}",
        "{% for i in range(99999) %}xxxxxxxxxx{% endfor %}",
    ],
)
def test_what_a_template_can_t_do(source: str) -> None:
    refused(source)


def test_the_time_is_bounded() -> None:
    ticks = iter(range(1000))
    template = ChatTemplate(
        "{% for i in range(500) %}{{ i }}{% endfor %}", clock=lambda: next(ticks)
    )
    with pytest.raises(RequestError) as refusal:
        rendered(template)
    assert refusal.value.code == "request.template"
    assert next(ticks) < 20


def test_a_loop_without_output_is_bounded_too() -> None:
    loops = "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}"
    ticks = iter(range(100))
    with pytest.raises(RequestError) as refusal:
        rendered(ChatTemplate(loops, clock=lambda: next(ticks)))
    assert refusal.value.code == "request.template"


def test_where_it_is_found(tmp_path: Path) -> None:
    config = {"eos_token": {"content": "<eos>"}, "bos_token": None}
    assert rendered(ChatTemplate.load(tmp_path)) == rendered(ChatTemplate())
    (tmp_path / CONFIG_FILE).write_text(json.dumps(config))
    assert rendered(ChatTemplate.load(tmp_path)) == rendered(ChatTemplate())
    named = [{"name": "rag", "template": "no"}, {"name": "default", "template": "named"}]
    (tmp_path / CONFIG_FILE).write_text(json.dumps({"chat_template": named}))
    assert rendered(ChatTemplate.load(tmp_path)) == "named"
    (tmp_path / CONFIG_FILE).write_text(json.dumps(config | {"chat_template": "{{ eos_token }}"}))
    assert rendered(ChatTemplate.load(tmp_path)) == "<eos>"
    (tmp_path / TEMPLATE_FILE).write_text("file")
    assert rendered(ChatTemplate.load(tmp_path)) == "file"


@pytest.mark.parametrize(
    "content", ['{"chat_template": 1}', '{"chat_template": "{% if %}"}', "[]", "{", '{"a":1,"a":2}']
)
def test_files_that_are_wrong(tmp_path: Path, content: str) -> None:
    (tmp_path / CONFIG_FILE).write_text(content)
    with pytest.raises(ConfigError) as refusal:
        ChatTemplate.load(tmp_path)
    assert refusal.value.code == "config.chat_template"


def test_template_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / TEMPLATE_FILE).write_bytes(b"\xff")
    with pytest.raises(ConfigError):
        ChatTemplate.load(tmp_path)
    (tmp_path / TEMPLATE_FILE).write_bytes(b"x" * (1 << 20) + b"x")
    with pytest.raises(ConfigError):
        ChatTemplate.load(tmp_path)
    (tmp_path / TEMPLATE_FILE).unlink()
    os.mkfifo(tmp_path / TEMPLATE_FILE)
    with pytest.raises(ConfigError):
        ChatTemplate.load(tmp_path)
