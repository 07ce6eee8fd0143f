"""Completions through the real client: text, stops, log-probabilities, batches, usage."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import openai
import pytest

from coordinator.request import RequestEvent
from coordinator.serving.api_client import MODEL, PATHS, TEXT, endless, service
from coordinator.serving.api_server import ApiServer
from coordinator.serving.fake_served import FakeServed, writes

ANSWER = "Grüße, 世界 😀. The end\n\nof it."
TOKENS = TEXT.encode(ANSWER)


@pytest.fixture(scope="module")
def served() -> Iterator[FakeServed]:
    with FakeServed(writes(TOKENS)) as served:
        yield served


@pytest.fixture(scope="module")
def client(served: FakeServed) -> Iterator[openai.OpenAI]:
    with (
        ApiServer(served, text=TEXT) as server,
        openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def test_a_whole_answer(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Say", max_tokens=100)
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.model == MODEL
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason, choice.index) == (ANSWER, "stop", 0)
    assert choice.logprobs is None
    assert answer.usage is not None
    # The end of text is a token too.
    assert answer.usage.completion_tokens == len(TOKENS) + 1
    assert answer.usage.prompt_tokens == len(TEXT.encode("Say"))
    assert answer.usage.total_tokens == len(TEXT.encode("Say")) + len(TOKENS) + 1


def test_a_stream_says_the_same_in_whole_characters(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model=MODEL,
            prompt="Say",
            max_tokens=100,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *texts, usage = chunks
    assert len({chunk.id for chunk in chunks}) == 1
    pieces = [chunk.choices[0].text for chunk in texts]
    assert "".join(pieces) == ANSWER
    assert "\ufffd" not in "".join(pieces)
    assert [chunk.choices[0].finish_reason for chunk in texts][-1] == "stop"
    assert {chunk.choices[0].finish_reason for chunk in texts[:-1]} == {None}
    assert (usage.choices, [chunk.usage for chunk in texts]) == ([], [None] * len(texts))
    assert usage.usage is not None
    assert usage.usage.completion_tokens == len(TOKENS) + 1


@pytest.mark.parametrize("count", range(1, len(TOKENS) + 1))
def test_length_ends_it_anywhere(client: openai.OpenAI, count: int) -> None:
    """A character that the last token leaves open is told as one replacement, and not before."""
    answer = client.completions.create(model=MODEL, prompt="Say", max_tokens=count)
    (choice,) = answer.choices
    assert choice.text == TEXT.decode(TOKENS[:count])
    assert choice.finish_reason == "length"
    streamed = client.completions.create(model=MODEL, prompt="Say", max_tokens=count, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == choice.text


def test_the_default_length(client: openai.OpenAI, served: FakeServed) -> None:
    client.completions.create(model=MODEL, prompt="Say")
    assert served.submitted[-1].max_tokens == 16


@pytest.mark.parametrize(
    "stop", ["\n\n", [". The end\n\no"], ["zzz", "世界"], "😀", ["d\n", "end"], "Grüße", "of it.!"]
)
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(
    client: openai.OpenAI, served: FakeServed, stop: str | list[str], stream: bool
) -> None:
    stops = [stop] if isinstance(stop, str) else stop
    before = min((ANSWER.partition(one)[0] for one in stops), key=len)
    if stream:
        chunks = list(
            client.completions.create(
                model=MODEL, prompt="Say", max_tokens=100, stop=stop, stream=True
            )
        )
        text = "".join(chunk.choices[0].text for chunk in chunks)
        reason = chunks[-1].choices[0].finish_reason
    else:
        answer = client.completions.create(model=MODEL, prompt="Say", max_tokens=100, stop=stop)
        text, reason = answer.choices[0].text, answer.choices[0].finish_reason
    assert (text, reason) == (before, "stop")
    assert served.idle


def test_a_stop_string_counts_the_tokens_up_to_it(client: openai.OpenAI) -> None:
    """However far the engine was by then."""
    for _ in range(10):
        answer = client.completions.create(model=MODEL, prompt="S", max_tokens=100, stop="\n\n")
        assert answer.usage is not None
        assert TEXT.decode(TOKENS[: answer.usage.completion_tokens]).endswith("\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_reaches_the_engine_at_once(stream: bool) -> None:
    """What would go on for very long is let go of by the next step or two."""
    with service() as (served, server, _):
        stop = TEXT.decode([1 + (1 + count) % 94 for count in range(10, 13)])
        told = endless(stream=stream, stop=stop) | {"prompt": [1]}
        assert httpx2.post(server.url + PATHS[0], json=told, timeout=60).status_code == 200
        assert served.ended == [(0, RequestEvent.STOP)]
        assert served.idle
        assert len(served.ranks.plans) < 1_000


def test_stop_tokens_and_ignored_ends(client: openai.OpenAI) -> None:
    stop = TOKENS[6]
    place = TOKENS.index(stop)
    answer = client.completions.create(
        model=MODEL, prompt="Say", max_tokens=100, extra_body={"stop_token_ids": [stop]}
    )
    assert answer.choices[0].text == TEXT.decode(TOKENS[:place])
    assert answer.choices[0].finish_reason == "stop"
    answer = client.completions.create(
        model=MODEL, prompt="Say", max_tokens=100, extra_body={"ignore_eos": True}
    )
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (ANSWER, "length")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 100


def test_token_ids_and_echo(client: openai.OpenAI, served: FakeServed) -> None:
    ids = TEXT.encode("né")
    answer = client.completions.create(model=MODEL, prompt=ids, max_tokens=3, echo=True)
    assert answer.choices[0].text == "né" + TEXT.decode(TOKENS[:3])
    assert list(served.submitted[-1].prompt_token_ids) == ids
    chunks = client.completions.create(
        model=MODEL, prompt="né", max_tokens=3, echo=True, stream=True
    )
    pieces = [chunk.choices[0].text for chunk in chunks]
    assert pieces[0] == "né"
    assert "".join(pieces) == answer.choices[0].text


def test_a_character_that_begins_in_the_echoed_prompt() -> None:
    ids = TEXT.encode("😀")
    with FakeServed(writes(ids[2:])) as served, ApiServer(served, text=TEXT) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        answer = client.completions.create(model=MODEL, prompt=ids[:2], echo=True)
        assert answer.choices[0].text == "😀"


@pytest.mark.parametrize("stream", [False, True])
def test_a_batch(client: openai.OpenAI, served: FakeServed, stream: bool) -> None:
    prompts = ["One", "Two more", "Three of them", "Four", "Five", "Six"]
    texts = dict.fromkeys(range(len(prompts)), "")
    if stream:
        chunks = client.completions.create(
            model=MODEL,
            prompt=prompts,
            max_tokens=100,
            echo=True,
            stream=True,
            stream_options={"include_usage": True},
        )
        for chunk in chunks:
            usage = chunk.usage
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    else:
        answer = client.completions.create(model=MODEL, prompt=prompts, max_tokens=100, echo=True)
        usage = answer.usage
        assert [choice.index for choice in answer.choices] == list(range(len(prompts)))
        texts = {choice.index: choice.text for choice in answer.choices}
    assert list(texts.values()) == [prompt + ANSWER for prompt in prompts]
    assert usage is not None
    assert usage.completion_tokens == len(prompts) * (len(TOKENS) + 1)
    assert usage.prompt_tokens == sum(len(TEXT.encode(prompt)) for prompt in prompts)
    assert served.idle


def test_a_batch_of_token_ids(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=[[1, 2], [3]], max_tokens=1)
    assert len(answer.choices) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs(client: openai.OpenAI, stream: bool) -> None:
    if stream:
        logprobs = [
            chunk.choices[0].logprobs
            for chunk in client.completions.create(
                model=MODEL, prompt="Say", max_tokens=100, logprobs=2, stream=True
            )
            if chunk.choices[0].logprobs is not None
        ]
    else:
        answer = client.completions.create(model=MODEL, prompt="Say", max_tokens=100, logprobs=2)
        assert answer.choices[0].logprobs is not None
        logprobs = [answer.choices[0].logprobs]
    tokens = [token for one in logprobs for token in one.tokens or ()]
    assert tokens == [TEXT.name(token) for token in [*TOKENS, 0]]
    values = [value for one in logprobs for value in one.token_logprobs or ()]
    assert values == [-0.5] * len(tokens)
    tops = [top for one in logprobs for top in one.top_logprobs or ()]
    assert all(
        len(top) == 2 and top[token] == -0.5 for top, token in zip(tops, tokens, strict=True)
    )
    offsets = [offset for one in logprobs for offset in one.text_offset or ()]
    expected = []
    for count in range(len(tokens)):
        stream_of_text = TEXT.stream()
        expected.append(len("".join(map(stream_of_text.feed, TOKENS[:count]))))
    assert offsets == expected


def test_logprobs_without_alternatives(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Say", max_tokens=2, logprobs=0)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.top_logprobs == [{TEXT.name(token): -0.5} for token in TOKENS[:2]]


@pytest.mark.parametrize("stream", [False, True])
def test_timings(client: openai.OpenAI, stream: bool) -> None:
    timings: object = None
    if stream:
        for chunk in client.completions.create(
            model=MODEL, prompt="S", seed=7, max_tokens=3, stream=True, extra_body={"timings": True}
        ):
            timings = (chunk.model_extra or {}).get("timings", timings)
    else:
        answer = client.completions.create(
            model=MODEL, prompt="S", seed=7, max_tokens=3, extra_body={"timings": True}
        )
        timings = (answer.model_extra or {})["timings"]
    assert isinstance(timings, dict)
    assert timings["seed"] == 7
    assert len(timings["token_ms"]) == 3
    assert timings["token_ms"] == sorted(timings["token_ms"])
    assert timings["ttft_ms"] == timings["token_ms"][0]
    parts = timings["queue_ms"] + timings["prefill_ms"]
    assert parts == pytest.approx(timings["ttft_ms"], abs=0.002)
    assert min(timings["queue_ms"], timings["prefill_ms"], timings["decode_ms"]) >= 0


def test_seeds(client: openai.OpenAI, served: FakeServed) -> None:
    """A seed that is given is taken; one that is missing is drawn, for each prompt anew."""
    client.completions.create(model=MODEL, prompt="S", max_tokens=1, seed=2**64 - 1)
    assert served.submitted[-1].sampling.seed == 2**64 - 1
    client.completions.create(model=MODEL, prompt=["S", "S"], max_tokens=1)
    first, second = (submission.sampling.seed for submission in served.submitted[-2:])
    assert first != second
    client.completions.create(model=MODEL, prompt="S", max_tokens=1, temperature=0)
    assert served.submitted[-1].sampling.seed == 0


def test_sampling_parameters_reach_the_engine(client: openai.OpenAI, served: FakeServed) -> None:
    client.completions.create(
        model=MODEL,
        prompt="S",
        max_tokens=1,
        temperature=0.25,
        top_p=0.5,
        presence_penalty=1,
        frequency_penalty=-1,
        logit_bias={"5": -100},
        user="somebody",
        n=1,
        best_of=1,
        extra_body={"top_k": 4, "min_p": 0.125, "repetition_penalty": 1.5},
    )
    sampling = served.submitted[-1].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.25, 0.5, 4)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1.0, -1.0)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.125, 1.5)
    assert sampling.logit_bias == ((5, -100.0),)
