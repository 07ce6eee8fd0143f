"""Chat completions, tokens and models through the real client."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import openai
import pytest

from coordinator.serving.api_server import TINY, ApiServer
from coordinator.serving.fake_served import LIMITS, FakeServed, writes
from coordinator.serving.text import ModelText

TEXT = ModelText.load(TINY)
ANSWER = "Certainly 😀: yes."
TOKENS = TEXT.encode(ANSWER)
MODEL = "fake-model"


@pytest.fixture(scope="module")
def served() -> Iterator[FakeServed]:
    with FakeServed(writes(TOKENS)) as served:
        yield served


@pytest.fixture(scope="module")
def server(served: FakeServed) -> Iterator[ApiServer]:
    with ApiServer(served, text=TEXT) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: ApiServer) -> Iterator[openai.OpenAI]:
    url = server.url + "/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def test_a_whole_answer(client: openai.OpenAI, served: FakeServed) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {"role": "assistant", "content": "c"},
            {"role": "user", "content": "d"},
        ],
    )
    assert (answer.object, answer.id[:9]) == ("chat.completion", "chatcmpl-")
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", ANSWER)
    assert (choice.finish_reason, choice.logprobs) == ("stop", None)
    prompt = "system: Be brief.\nuser: a\nb\nassistant: c\nuser: d\nassistant:"
    assert list(served.submitted[-1].prompt_token_ids) == TEXT.encode(prompt)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(TEXT.encode(prompt))


def test_a_stream(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "?"}], stream=True
        )
    )
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == ANSWER
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs(client: openai.OpenAI, stream: bool) -> None:
    entries = []
    if stream:
        for chunk in client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "?"}],
            logprobs=True,
            top_logprobs=3,
            stream=True,
        ):
            logprobs = chunk.choices[0].logprobs
            entries += [] if logprobs is None else logprobs.content or []
    else:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "?"}],
            logprobs=True,
            top_logprobs=3,
        )
        assert answer.choices[0].logprobs is not None
        entries = answer.choices[0].logprobs.content or []
    assert [entry.token for entry in entries] == [TEXT.name(token) for token in [*TOKENS, 0]]
    assert b"".join(bytes(entry.bytes or []) for entry in entries[:-1]) == ANSWER.encode()
    assert {len(entry.top_logprobs) for entry in entries} == {3}
    assert all(entry.top_logprobs[0].token == entry.token for entry in entries)


def test_both_names_of_the_length(client: openai.OpenAI, served: FakeServed) -> None:
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [
        {"role": "user", "content": "?"}
    ]
    client.chat.completions.create(model=MODEL, messages=messages, max_completion_tokens=3)
    assert served.submitted[-1].max_tokens == 3
    client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4)
    assert served.submitted[-1].max_tokens == 4
    client.chat.completions.create(model=MODEL, messages=messages)
    prompt = len(served.submitted[-1].prompt_token_ids)
    assert served.submitted[-1].max_tokens == LIMITS.context_tokens - prompt
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=4, max_completion_tokens=3
        )
    assert refusal.value.param == "max_completion_tokens"


def test_neutral_values_are_accepted(client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "?", "name": "ann"}],
        n=1,
        tools=[],
        tool_choice="none",
        response_format={"type": "text"},
        modalities=["text"],
        store=False,
        metadata={},
        service_tier="auto",
        user="somebody",
        parallel_tool_calls=False,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).created == 1_700_000_000
    with pytest.raises(openai.NotFoundError) as refusal:
        client.models.retrieve("other")
    assert refusal.value.code == "request.model"


def test_tokens_and_back(server: ApiServer) -> None:
    with httpx2.Client(base_url=server.url) as http:
        body = {"model": MODEL, "prompt": "né", "return_token_strs": True}
        told = http.post("/tokenize", json=body).json()
        ids = TEXT.encode("né")
        assert told == {
            "count": len(ids),
            "max_model_len": LIMITS.context_tokens,
            "tokens": ids,
            "token_strs": [TEXT.name(token) for token in ids],
        }
        assert http.post("/detokenize", json={"tokens": ids}).json() == {"prompt": "né"}
        nothing = dict.fromkeys(("messages", "add_generation_prompt", "chat_template_kwargs"))
        told = http.post("/tokenize", json={"prompt": "né"} | nothing).json()
        assert told["tokens"] == ids
        chat = {"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": False}
        told = http.post("/tokenize", json=chat).json()
        assert told["tokens"] == TEXT.encode("user: x\n")
        assert told["token_strs"] is None
        for path, wrong, param in [
            ("/tokenize", {}, "prompt"),
            ("/tokenize", {"prompt": 1}, "prompt"),
            ("/tokenize", {"prompt": "x", "add_special_tokens": True}, "add_special_tokens"),
            ("/tokenize", {"prompt": "x", "messages": []}, "messages"),
            ("/tokenize", {"prompt": "x", "extra": 1}, "extra"),
            ("/tokenize", {"prompt": None, "messages": None}, "prompt"),
            ("/detokenize", {}, "tokens"),
            ("/detokenize", {"tokens": None}, "tokens"),
            ("/detokenize", {"tokens": [1024]}, "tokens"),
            ("/detokenize", {"tokens": ["a"]}, "tokens"),
            ("/detokenize", {"tokens": [], "model": "x"}, "model"),
        ]:
            answer = http.post(path, json=wrong)
            assert answer.status_code in (400, 404)
            assert answer.json()["error"]["param"] == param


def test_a_long_text_is_tokenized_beside_the_loop(server: ApiServer) -> None:
    text = "many words " * 5_000
    with httpx2.Client(base_url=server.url) as http:
        told = http.post("/tokenize", json={"prompt": text}).json()
        assert http.post("/detokenize", json={"tokens": told["tokens"]}).json()["prompt"] == text
