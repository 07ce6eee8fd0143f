"""The options about a model: each reaches its field, none is guessed, all mistakes come at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.arguments import parse_arguments
from coordinator.model_options import GenerateOptions, PlanOptions, ScoreOptions
from coordinator.options import CallContext
from errors import ConfigError
from manifest.run_manifest import ModelOptions, RunManifest

HERE = CallContext(Path("/call"), model=Path("/embedded"))
# The shortest command line of each subcommand.
LEAST = {
    "plan": ["plan"],
    "score": ["score", "--tokens", "t.json"],
    "generate": ["generate", "--prompt", "x"],
}


def manifest_of(argv: list[str], context: CallContext = HERE) -> RunManifest:
    options = parse_arguments(argv, context)
    assert isinstance(options, PlanOptions | ScoreOptions | GenerateOptions)
    return options.manifest


def model_of(argv: list[str]) -> ModelOptions:
    model = manifest_of(argv).model
    assert model is not None
    return model


def refused(argv: list[str], context: CallContext = HERE) -> list[str]:
    with pytest.raises(ConfigError) as refusal:
        parse_arguments(argv, context)
    assert refusal.value.exit_code == 2
    return [problem.field for problem in refusal.value.problems]


@pytest.mark.parametrize("command", LEAST)
def test_the_defaults(command: str) -> None:
    manifest = manifest_of(LEAST[command])
    assert (manifest.program, manifest.ranks) == ("qwen35/sharded", 2)
    assert manifest.deadlines.load_ms == 600_000
    assert manifest.model == ModelOptions(
        checkpoint="/embedded",
        weights_dtype="auto",
        compute_dtype="float32",
        max_batch=8 if command == "plan" else 1,
        max_step_tokens=512,
        page_tokens=16,
        check_weights=False,
        device_ordinals=(),
        execution="eager",
        rank_memory_bytes=(),
    )


@pytest.mark.parametrize("command", LEAST)
def test_every_option(command: str) -> None:
    argv = "--checkpoint ../m --program replicated --tp 4 --weights-dtype bfloat16"
    argv += " --compute float64 --max-step-tokens 9 --page-tokens 3 --device-ordinals 3,2,1,0"
    argv += " --execution eager --rank-memory-bytes 7000000,8000000,7000000,9000000"
    argv += " --sum-order pairwise --transport tcp --check-weights --handshake-ms 1 --load-ms 2"
    argv += " --phase-ms 3 --send-ms 4 --close-ms 5"
    manifest = manifest_of([*LEAST[command], *argv.split()])
    assert (manifest.program, manifest.ranks) == ("qwen35/replicated", 4)
    assert (manifest.sum_order, manifest.transport) == ("pairwise", "tcp")
    waits = manifest.deadlines
    found = (waits.handshake_ms, waits.load_ms, waits.phase_ms, waits.send_ms, waits.close_ms)
    assert found == (1, 2, 3, 4, 5)
    model = manifest.model
    assert model is not None
    assert model.checkpoint == "/call/../m"
    assert (model.weights_dtype, model.compute_dtype) == ("bfloat16", "float64")
    assert (model.max_step_tokens, model.page_tokens, model.check_weights) == (9, 3, True)
    assert model.device_ordinals == (3, 2, 1, 0)
    assert model.rank_memory_bytes == (7000000, 8000000, 7000000, 9000000)


def test_only_what_holds_many_requests_has_a_batch() -> None:
    assert model_of(["plan", "--max-batch", "3"]).max_batch == 3
    for command in ("score", "generate"):
        assert refused([*LEAST[command], "--max-batch", "3"]) == ["option"]


@pytest.mark.parametrize("command", LEAST)
@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        ("--tp 0", ["ranks"]),
        ("--tp two", ["ranks"]),
        ("--program both", ["--program"]),
        ("--weights-dtype int8", ["model.weights_dtype"]),
        ("--compute float16", ["model.compute_dtype"]),
        ("--execution captured", ["model.execution"]),
        ("--execution captured --tp 1", ["model.execution"]),
        ("--execution graph", ["model.execution"]),
        ("--device-ordinals 0,x", ["model.device_ordinals"]),
        ("--device-ordinals 0,16", ["model.device_ordinals"]),
        ("--page-tokens 0", ["model.page_tokens"]),
        ("--checkpoints m", ["option"]),
        ("--check-weights=yes", ["--check-weights"]),
        ("--tp 0 --program both --page-tokens 0", ["--program", "ranks", "model.page_tokens"]),
    ],
)
def test_refusals(command: str, argv: str, fields: list[str]) -> None:
    assert refused([*LEAST[command], *argv.split()]) == fields


def test_a_build_without_a_model_needs_a_checkpoint() -> None:
    assert refused(["plan"], CallContext(Path("/call"))) == ["--checkpoint"]
    bare = manifest_of(["plan", "--checkpoint", "/m"], CallContext(Path("/call"))).model
    assert bare is not None
    assert bare.checkpoint == "/m"


# --- score ------------------------------------------------------------------------------------


def test_score_defaults_and_every_option() -> None:
    options = parse_arguments(LEAST["score"], HERE)
    assert isinstance(options, ScoreOptions)
    rest = (options.last, options.prefill_tokens, options.decode_from, options.out, options.ledger)
    assert (options.tokens, options.top) == (Path("/call/t.json"), None)
    assert rest == (None,) * 5
    argv = "score --tokens /t --top 128 --positions last:3 --prefill-tokens 5 --decode-from 0"
    options = parse_arguments([*argv.split(), "--out", "o.json", "--ledger", "run"], HERE)
    assert isinstance(options, ScoreOptions)
    assert (options.tokens, options.top, options.last) == (Path("/t"), 128, 3)
    assert (options.prefill_tokens, options.decode_from) == (5, 0)
    assert (options.out, options.ledger) == (Path("/call/o.json"), Path("/call/run"))


def test_all_positions_may_be_asked_for_by_name() -> None:
    options = parse_arguments([*LEAST["score"], "--positions", "all"], HERE)
    assert isinstance(options, ScoreOptions)
    assert options.last is None


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        ("score", ["--tokens"]),
        ("score --tokens t --top 0", ["--top"]),
        ("score --tokens t --top 129", ["--top"]),
        ("score --tokens t --positions last", ["--positions"]),
        ("score --tokens t --positions last:0", ["--positions"]),
        ("score --tokens t --positions last:-1", ["--positions"]),
        ("score --tokens t --positions first:2", ["--positions"]),
        ("score --tokens t --prefill-tokens 0", ["--prefill-tokens"]),
        ("score --tokens t --decode-from -1", ["--decode-from"]),
        ("score --tokens t --decode-from 1.5", ["--decode-from"]),
        ("score --top x --positions y --tp 0", ["--tokens", "--top", "--positions", "ranks"]),
    ],
)
def test_score_refusals(argv: str, fields: list[str]) -> None:
    assert refused(argv.split()) == fields


# --- generate ---------------------------------------------------------------------------------


def generated(argv: str) -> GenerateOptions:
    options = parse_arguments(["generate", *argv.split()], HERE)
    assert isinstance(options, GenerateOptions)
    return options


def test_generate_options_become_parameters_of_the_request() -> None:
    options = generated("--prompt Hello")
    assert (options.text, options.prompt_tokens, options.json) == ("Hello", None, False)
    assert options.parameters == {"max_tokens": 64}
    argv = "--prompt-tokens 1,2,3 --max-tokens 5 --seed 18446744073709551615 --top-k 4 --logprobs 0"
    argv += " --temperature 0.5 --top-p 1 --min-p 1e-3 --repetition-penalty 1.5"
    argv += " --presence-penalty -2 --frequency-penalty 0.25 --stop-token-ids 7,8 --json"
    options = generated(argv)
    assert (options.text, options.prompt_tokens, options.json) == (None, (1, 2, 3), True)
    assert options.parameters == {
        "max_tokens": 5,
        "seed": 2**64 - 1,
        "top_k": 4,
        "logprobs": 0,
        "temperature": 0.5,
        "top_p": 1,
        "min_p": 0.001,
        "repetition_penalty": 1.5,
        "presence_penalty": -2,
        "frequency_penalty": 0.25,
        "stop_token_ids": [7, 8],
    }


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        ("generate", ["--prompt"]),
        ("generate --prompt a --prompt-tokens 1", ["--prompt"]),
        ("generate --prompt-tokens 1,,2", ["--prompt-tokens"]),
        ("generate --prompt-tokens 1,-2", ["--prompt-tokens"]),
        ("generate --prompt a --temperature NaN", ["--temperature"]),
        ("generate --prompt a --temperature Infinity", ["--temperature"]),
        ("generate --prompt a --temperature hot", ["--temperature"]),
        ("generate --prompt a --temperature true", ["--temperature"]),
        ("generate --prompt a --max-tokens 1.0", ["--max-tokens"]),
        ("generate --prompt a --stop-token-ids x", ["--stop-token-ids"]),
        ("generate --prompt a --seed 0x1 --top-p p --tp 0", ["--seed", "--top-p", "ranks"]),
    ],
)
def test_generate_refusals(argv: str, fields: list[str]) -> None:
    assert refused(argv.split()) == fields
