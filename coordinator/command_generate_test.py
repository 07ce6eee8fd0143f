"""`generate` with the shipped model over real workers, and what it refuses before any starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator.command_generate import Generated, generate
from coordinator.model_cases import MACHINE, bindings, model_run, no_workers
from coordinator.model_options import GenerateOptions
from coordinator.model_setup import set_up
from coordinator.request import Outcome
from coordinator.serving.tokenizer import TextTokenizer
from errors import CapacityError, ConfigError, RequestError
from testdata.golden import golden_loader

TINY = Path("testdata/tiny-qwen35")
TRAINED = golden_loader.load_manifest().trained
# The reference went on after it.
END = "<|endoftext|>"
JSON_KEYS = {
    "ok",
    "prompt_tokens",
    "tokens",
    "text",
    "finish_reason",
    "logprobs",
    "elapsed_seconds",
    "loads",
    "error",
}


def options(
    text: str | None = None, tokens: tuple[int, ...] | None = None, **parameters: object
) -> GenerateOptions:
    given = {"max_tokens": 8} | parameters
    return GenerateOptions(model_run(TINY.absolute()), text, tokens, given, json=True)


def generated(asked: GenerateOptions) -> Generated:
    return generate(asked, bindings(), TextTokenizer)


@pytest.mark.parametrize("index", [0, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_the_shipped_model_writes_what_the_reference_writes(index: int) -> None:
    """Greedy, the number of tokens of the golden; the reference chose in binary64."""
    result = generated(options(TRAINED.prompts[index], max_tokens=TRAINED.golden.steps))
    text, end, _ = TRAINED.continuations[index].partition(END)
    assert result.text == text
    assert result.outcome is (Outcome.STOP if end else Outcome.LENGTH)


def test_tokens_in_tokens_out_with_logprobs() -> None:
    result = generated(options(tokens=(5, 6, 7), logprobs=3, stop_token_ids=[]))
    document = json.loads(result.to_json())
    assert set(document) == JSON_KEYS
    assert (document["ok"], document["text"], document["error"]) == (True, None, None)
    assert document["prompt_tokens"] == [5, 6, 7]
    assert document["finish_reason"] == "length"
    assert len(document["tokens"]) == len(document["logprobs"]) == 8
    for token, entry in zip(document["tokens"], document["logprobs"], strict=True):
        assert entry["token"] == token == entry["top"][0][0]
        assert len(entry["top"]) == 3
    assert [sorted(load) for load in document["loads"]] == [sorted(document["loads"][0])] * 2


def test_a_stop_token_ends_the_text_and_is_not_shown() -> None:
    free = generated(options(tokens=(5, 6, 7), stop_token_ids=[]))
    stop = free.tokens[3].token_id
    first = [token.token_id for token in free.tokens].index(stop)
    result = generated(options(tokens=(5, 6, 7), stop_token_ids=[stop]))
    assert result.outcome is Outcome.STOP
    assert result.tokens == free.tokens[: first + 1]


@pytest.mark.exhaustive
def test_a_seed_decides_and_the_number_of_ranks_does_not() -> None:
    asked = options("Return", temperature=0.9, seed=3, max_tokens=12, stop_token_ids=[])
    results = [generated(asked)]
    one = GenerateOptions(
        model_run(TINY.absolute(), ranks=1), asked.text, None, asked.parameters, json=True
    )
    results.append(generated(one))
    assert results[0].tokens == results[1].tokens
    other = generated(options("Return", temperature=0.9, seed=4, max_tokens=12, stop_token_ids=[]))
    assert other.tokens != results[0].tokens


@pytest.mark.parametrize(
    ("asked", "code", "param"),
    [
        (options(""), "request.range", "prompt_token_ids"),
        (options(tokens=()), "request.range", "prompt_token_ids"),
        (options(tokens=(1024,)), "request.range", "prompt_token_ids"),
        (options(tokens=(1,) * 1025), "request.range", "prompt_token_ids"),
        (options(tokens=(1,) * 1020), "request.context", "max_tokens"),
        (options(tokens=(1,), max_tokens=0), "request.range", "max_tokens"),
        (options(tokens=(1,), max_tokens=10**12), "request.range", "max_tokens"),
        (options(tokens=(1,), temperature=0.5), "request.missing", "seed"),
        (options(tokens=(1,), temperature=-1.0), "request.range", "temperature"),
        (options(tokens=(1,), logprobs=21), "request.range", "logprobs"),
        (options(tokens=(1,), stop_token_ids=[1024]), "request.range", "stop_token_ids"),
    ],
)
def test_requests_that_cannot_be_are_refused_before_a_worker_starts(
    asked: GenerateOptions, code: str, param: str
) -> None:
    with pytest.raises(RequestError) as refusal:
        generate(asked, bindings(no_workers), TextTokenizer)
    assert (refusal.value.code, refusal.value.param) == (code, param)
    assert refusal.value.exit_code == 2


def test_a_request_that_never_fits_is_refused_before_a_worker_starts() -> None:
    """A rank with room for its weights, one slot and two pages."""
    manifest = model_run(TINY.absolute())
    budget = set_up(manifest, lambda: MACHINE).capacity.ranks[0]
    fixed = budget.weight_bytes + budget.scratch_bytes + budget.reserve_bytes
    memory = fixed + budget.slot_bytes + 2 * budget.page_bytes
    tight = model_run(TINY.absolute(), model__rank_memory_bytes=memory)
    asked = GenerateOptions(tight, None, (1,) * 40, {"max_tokens": 8}, json=True)
    with pytest.raises(CapacityError) as refusal:
        generate(asked, bindings(no_workers), TextTokenizer)
    assert (refusal.value.code, refusal.value.exit_code) == ("request.capacity", 2)


def test_a_folder_without_a_tokenizer_can_still_take_tokens(tmp_path: Path) -> None:
    asked = GenerateOptions(model_run(tmp_path), "text", None, {"max_tokens": 8}, json=True)
    with pytest.raises(ConfigError) as refusal:
        generate(asked, bindings(no_workers), TextTokenizer)
    assert refusal.value.problems[0].field == "tokenizer"
