"""Bodies that are refused: the parameter is named, and no rank ever hears of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import httpx2
import pytest

from coordinator.serving.api_options import ApiOptions
from coordinator.serving.api_server import TINY, ApiServer
from coordinator.serving.chat_template import ChatTemplate
from coordinator.serving.fake_served import LIMITS, FakeServed
from coordinator.serving.text import ModelText
from coordinator.serving.tokenizer import TextTokenizer

TEXT = ModelText.load(TINY)
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT: dict[str, object] = {"prompt": "x"}
HELLO: dict[str, object] = {"messages": [{"role": "user", "content": "x"}]}
OPTIONS = ApiOptions(body_bytes_max=60_000, prompts_max=3)
UNKNOWN, MISSING, TYPE, RANGE = (
    "request.unknown",
    "request.missing",
    "request.type",
    "request.range",
)
CONTEXT, UNSUPPORTED, SYNTAX = "request.context", "request.unsupported", "request.syntax"

# Parameter, value, code; the same for both endpoints.
BOTH = [
    ("nonsense", 1, UNKNOWN),
    ("Temperature", 1, UNKNOWN),
    ("prefix_reuse", False, UNKNOWN),
    ("model", "other", "request.model"),
    ("model", 1, TYPE),
    ("max_tokens", 0, RANGE),
    ("max_tokens", -1, RANGE),
    ("max_tokens", 2000, RANGE),
    ("max_tokens", 1024, CONTEXT),
    ("max_tokens", "5", TYPE),
    ("max_tokens", 5.0, TYPE),
    ("max_tokens", True, TYPE),
    ("max_tokens", 10**40, RANGE),
    ("max_completion_tokens", 0, RANGE),
    ("max_completion_tokens", 1024, CONTEXT),
    ("temperature", -0.1, RANGE),
    ("temperature", 100.5, RANGE),
    ("temperature", "hot", TYPE),
    ("temperature", True, TYPE),
    ("temperature", 10**300, TYPE),
    ("top_p", 0, RANGE),
    ("top_p", 1.5, RANGE),
    ("top_k", -1, RANGE),
    ("top_k", 1025, RANGE),
    ("top_k", 1.0, TYPE),
    ("min_p", 2, RANGE),
    ("repetition_penalty", 0, RANGE),
    ("presence_penalty", 3, RANGE),
    ("frequency_penalty", -3, RANGE),
    ("logit_bias", [], TYPE),
    ("logit_bias", {"a": 1}, TYPE),
    ("logit_bias", {"01": 1}, TYPE),
    ("logit_bias", {"1024": 1}, RANGE),
    ("logit_bias", {"1": 101}, RANGE),
    ("logit_bias", {"1": None}, TYPE),
    ("logit_bias", {str(token): 0 for token in range(301)}, RANGE),
    ("seed", -1, RANGE),
    ("seed", 2**64, RANGE),
    ("seed", 1.5, TYPE),
    ("stop", "", RANGE),
    ("stop", ["a", ""], RANGE),
    ("stop", ["a"] * 17, RANGE),
    ("stop", "a" * 257, RANGE),
    ("stop", 1, TYPE),
    ("stop", [1], TYPE),
    ("stop", "\ud800", TYPE),
    ("stop_token_ids", 1, TYPE),
    ("stop_token_ids", [1024], RANGE),
    ("stop_token_ids", ["1"], TYPE),
    ("stop_token_ids", [1] * 257, RANGE),
    ("ignore_eos", 1, TYPE),
    ("stream", "yes", TYPE),
    ("timings", 1, TYPE),
    ("stream_options", {"include_usage": True}, UNSUPPORTED),
    ("n", 2, UNSUPPORTED),
    ("n", True, UNSUPPORTED),
    ("user", 5, UNSUPPORTED),
]
COMPLETION: list[tuple[str, object, str]] = [
    ("prompt", None, MISSING),
    ("prompt", 5, TYPE),
    ("prompt", {}, TYPE),
    ("prompt", "", RANGE),
    ("prompt", [], RANGE),
    ("prompt", [""], RANGE),
    ("prompt", [[]], RANGE),
    ("prompt", ["a", 1], TYPE),
    ("prompt", [1, "a"], TYPE),
    ("prompt", [True], TYPE),
    ("prompt", [1.0], TYPE),
    ("prompt", [-1], RANGE),
    ("prompt", [1024], RANGE),
    ("prompt", [[1], ["a"]], TYPE),
    ("prompt", ["a"] * 4, RANGE),
    ("prompt", [1] * 1024, CONTEXT),
    ("prompt", [[1]] * 4, RANGE),
    ("prompt", "\udfff", TYPE),
    ("logprobs", 21, RANGE),
    ("logprobs", -1, RANGE),
    ("logprobs", True, TYPE),
    ("top_logprobs", 1, UNKNOWN),
    ("best_of", 2, UNSUPPORTED),
    ("suffix", "x", UNSUPPORTED),
    ("echo", 1, TYPE),
    ("messages", [], UNKNOWN),
]
CHATS: list[tuple[str, object, str]] = [
    ("messages", None, MISSING),
    ("messages", [], MISSING),
    ("messages", "hello", TYPE),
    ("messages", [HELLO["messages"]] * 1025, RANGE),
    ("messages[0]", ["x"], TYPE),
    ("messages[0].role", [{"content": "x"}], MISSING),
    ("messages[0].role", [{"role": "tool", "content": "x"}], RANGE),
    ("messages[0].role", [{"role": 1, "content": "x"}], TYPE),
    ("messages[0].content", [{"role": "user"}], MISSING),
    ("messages[0].content", [{"role": "user", "content": 1}], TYPE),
    ("messages[0].content", [{"role": "user", "content": "\ud800"}], TYPE),
    ("messages[0].content[0]", [{"role": "user", "content": ["x"]}], TYPE),
    (
        "messages[0].content[0].type",
        [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        UNSUPPORTED,
    ),
    ("messages[0].content[0].text", [{"role": "user", "content": [{"type": "text"}]}], MISSING),
    ("messages[0].weight", [{"role": "user", "content": "x", "weight": 1}], UNKNOWN),
    (
        "messages[0].tool_calls",
        [{"role": "assistant", "content": "x", "tool_calls": [{}]}],
        UNSUPPORTED,
    ),
    *[
        (
            f"messages[0].{key}",
            [{"role": "assistant", "content": "x", key: value}],
            UNSUPPORTED,
        )
        for key, value in (("tool_calls", 0), ("refusal", False), ("audio", {}))
    ],
    ("logprobs", 2, TYPE),
    ("top_logprobs", 2, UNSUPPORTED),
    ("tools", [{"type": "function"}], UNSUPPORTED),
    ("tool_choice", "required", UNSUPPORTED),
    ("functions", [{}], UNSUPPORTED),
    ("response_format", {"type": "json_object"}, UNSUPPORTED),
    ("response_format", {"type": "json_schema", "json_schema": {}}, UNSUPPORTED),
    ("modalities", ["text", "audio"], UNSUPPORTED),
    ("audio", {"voice": "x"}, UNSUPPORTED),
    ("store", True, UNSUPPORTED),
    ("metadata", {"a": "b"}, UNSUPPORTED),
    ("service_tier", "flex", UNSUPPORTED),
    ("reasoning_effort", "low", UNSUPPORTED),
    ("verbosity", "low", UNSUPPORTED),
    ("prediction", {"type": "content"}, UNSUPPORTED),
    ("web_search_options", {}, UNSUPPORTED),
    ("parallel_tool_calls", 1, UNSUPPORTED),
    ("echo", True, UNKNOWN),
    ("best_of", 1, UNKNOWN),
    ("prompt", "x", UNKNOWN),
    ("add_generation_prompt", 1, TYPE),
    ("chat_template_kwargs", [], TYPE),
    ("chat_template_kwargs.a", {"a": [1]}, TYPE),
    ("chat_template_kwargs.messages", {"messages": "x"}, UNSUPPORTED),
    ("chat_template_kwargs", {str(key): 1 for key in range(33)}, RANGE),
]
CASES = [
    *[(COMPLETIONS, PROMPT, *case) for case in BOTH + COMPLETION],
    *[(CHAT, HELLO, *case) for case in BOTH + CHATS],
]
STATUSES = {"request.model": 404}


@pytest.fixture(scope="module")
def served() -> Iterator[FakeServed]:
    with FakeServed() as served:
        yield served


@pytest.fixture(scope="module")
def http(served: FakeServed) -> Iterator[httpx2.Client]:
    with (
        ApiServer(served, OPTIONS, text=TEXT) as server,
        httpx2.Client(base_url=server.url) as http,
    ):
        yield http


def refused(answer: httpx2.Response, status: int, code: str, param: str | None) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = json.loads(answer.content, parse_constant=pytest.fail)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    assert error["type"] == "invalid_request_error"
    assert 0 < len(error["message"]) < 500
    if param is not None:
        assert param in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "param", "value", "code"),
    CASES,
    ids=[f"{case[0].count('chat')}-{case[2]}-{place}" for place, case in enumerate(CASES)],
)
def test_a_wrong_parameter(
    served: FakeServed,
    http: httpx2.Client,
    path: str,
    body: dict[str, object],
    param: str,
    value: object,
    code: str,
) -> None:
    before = len(served.submitted)
    key = param.partition("[")[0].partition(".")[0]
    data = json.dumps(body | {key: value})
    headers = {"content-type": "application/json"}
    answer = http.post(path, content=data, headers=headers)
    refused(answer, STATUSES.get(code, 400), code, param)
    assert len(served.submitted) == before


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"logprobs": 1, "echo": True}, "logprobs"),
        ({"timings": True, "prompt": ["a", "b"]}, "timings"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
    ],
)
def test_what_does_not_go_together(
    http: httpx2.Client, extra: dict[str, object], param: str
) -> None:
    answer = http.post(COMPLETIONS, json=PROMPT | extra)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/tokenize", "/detokenize"])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b'{"prompt":"x","prompt":"y"}',
        b'{"logit_bias":{"1":1,"1":2}}',
        b'{"temperature":NaN}',
        b'{"temperature":Infinity}',
        b'{"temperature":-Infinity}',
        b'{"temperature":1e999}',
        b'{"seed":' + b"9" * 5_000 + b"}",
        b'{"prompt":"\xff"}',
        b"[" * 9_000,
        b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
        b'{"prompt":"x"} x',
    ],
)
def test_bodies_that_are_no_strict_json(http: httpx2.Client, path: str, data: bytes) -> None:
    answer = http.post(path, content=data, headers={"content-type": "application/json"})
    refused(answer, 400, SYNTAX, "body")


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/tokenize", "/detokenize"])
def test_the_type_of_the_body(http: httpx2.Client, path: str) -> None:
    """What a form of a foreign page can send is refused."""
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/jsonx"}):
        refused(
            http.post(path, content=b"{}", headers=headers),
            415,
            "request.media_type",
            "content-type",
        )
    typed = {"content-type": "Application/JSON; charset=utf-8"}
    assert http.post("/tokenize", content=b'{"prompt":"x"}', headers=typed).status_code == 200


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/tokenize", "/detokenize"])
def test_a_body_that_is_packed(http: httpx2.Client, path: str) -> None:
    typed = {"content-type": "application/json"}
    for coding in ("gzip", "deflate, gzip", "x"):
        answer = http.post(path, content=b"{}", headers=typed | {"content-encoding": coding})
        refused(answer, 415, "request.media_type", "content-encoding")
    plain = typed | {"content-encoding": "Identity"}
    assert http.post("/tokenize", content=b'{"prompt":"x"}', headers=plain).status_code == 200


def test_the_size_of_the_body(http: httpx2.Client) -> None:
    body = json.dumps({"prompt": "x" * 60_000}).encode()
    headers = {"content-type": "application/json"}
    answer = http.post(COMPLETIONS, content=body, headers=headers)
    refused(answer, 413, "request.body_size", "body")
    chunked = http.post(COMPLETIONS, content=iter([body]), headers=headers)
    refused(chunked, 413, "request.body_size", "body")


@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, PROMPT), (CHAT, HELLO)])
def test_a_clean_request_after_all_that(
    served: FakeServed, http: httpx2.Client, path: str, body: dict[str, object]
) -> None:
    """`null` is the same as absent."""
    names = ("stop", "logprobs", "n", "user", "stream_options", "seed", "logit_bias", "max_tokens")
    answer = http.post(path, json=body | dict.fromkeys(names) | {"max_completion_tokens": 2})
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert served.idle


def test_a_template_that_refuses(served: FakeServed) -> None:
    chat = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    text = ModelText(TextTokenizer(TINY), chat)
    with ApiServer(served, text=text) as server:
        answer = httpx2.post(server.url + CHAT, json=HELLO)
        refused(answer, 400, "request.template", "messages")
        assert "roles must alternate" in answer.json()["error"]["message"]


def test_what_can_never_fit() -> None:
    limits = replace(LIMITS, pages=4)
    with FakeServed(limits=limits) as served, ApiServer(served, text=TEXT) as server:
        for stream in (False, True):
            body = PROMPT | {"max_tokens": 100, "stream": stream}
            answer = httpx2.post(server.url + COMPLETIONS, json=body)
            refused(answer, 400, "request.capacity", "max_tokens")
        # Without a number the default is what fits.
        chat = httpx2.post(server.url + CHAT, json=HELLO)
        assert chat.json()["usage"]["total_tokens"] == 65
