"""`generate`: one request through the scheduler, to its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from coordinator.admission import refusal
from coordinator.model_options import GenerateOptions
from coordinator.model_run import ModelBindings, running_model
from coordinator.model_session import ModelSession
from coordinator.model_setup import ModelSetup, set_up
from coordinator.request import Finished, Outcome, Token
from coordinator.scheduler import Scheduler
from coordinator.step_result import StepResult
from coordinator.submission import Submission, parse_submission
from errors import ConfigError, TPError
from program.artifacts import SampledToken
from wire.canonical import JsonValue
from wire.recorder import Recorder


class TextCodec(Protocol):
    """A model's tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, token_ids: list[int]) -> str: ...


@dataclass(frozen=True)
class Generated:
    """A finished continuation. text: None when the prompt was given as tokens.

    loads: what each rank said of its load (docs/spec/program.md, Q5).
    """

    prompt_tokens: tuple[int, ...]
    tokens: tuple[Token, ...]
    text: str | None
    outcome: Outcome
    elapsed_seconds: float
    loads: tuple[Mapping[str, JsonValue], ...]

    def to_json(self) -> str:
        return json.dumps(
            {
                "ok": True,
                "prompt_tokens": list(self.prompt_tokens),
                "tokens": [token.token_id for token in self.tokens],
                "text": self.text,
                "finish_reason": self.outcome.value,
                "logprobs": [_logprobs(t) for t in self.tokens if t.logprob is not None],
                "elapsed_seconds": round(self.elapsed_seconds, 6),
                "loads": [dict(load) for load in self.loads],
                "error": None,
            },
            allow_nan=False,
        )


def _logprobs(token: Token) -> dict[str, object]:
    return {
        "token": token.token_id,
        "logprob": token.logprob,
        "top": [[entry.token_id, entry.logprob] for entry in token.top],
    }


def generate(
    options: GenerateOptions, bindings: ModelBindings, codec: Callable[[Path], TextCodec]
) -> Generated:
    """Continue the prompt. codec: the tokenizer of a checkpoint folder.

    Raises ConfigError, RequestError or CapacityError before a process starts; PeerError, TPError.
    """
    manifest = options.manifest
    model = manifest.model
    if model is None:
        raise ConfigError.single("program", manifest.program, "is no model program")
    started = time.monotonic()
    text = codec(Path(model.checkpoint)) if options.text is not None else None
    prompt = list(options.prompt_tokens or ())
    if text is not None and options.text is not None:
        prompt = text.encode(options.text)
    setup = set_up(manifest, bindings.machine, _positions(prompt, options.parameters))
    submission = _submission(prompt, options.parameters, setup)
    with running_model(setup, manifest, bindings, Recorder(keep_bytes=False)) as session:
        tokens, outcome = complete(session, submission, model.max_step_tokens)
        reports = tuple(session.reports)
    shown = [token.token_id for token in tokens]
    if shown and shown[-1] in submission.stop_token_ids:
        shown = shown[:-1]
    return Generated(
        prompt_tokens=tuple(prompt),
        tokens=tokens,
        text=text.decode(shown) if text is not None else None,
        outcome=outcome,
        elapsed_seconds=time.monotonic() - started,
        loads=reports,
    )


def _positions(prompt: list[int], parameters: Mapping[str, object]) -> int | None:
    """The longest this request can become; None where its length makes no sense anyway."""
    new = parameters.get("max_tokens")
    return len(prompt) + new if type(new) is int and new > 0 else None


def _submission(
    prompt: list[int], parameters: Mapping[str, object], setup: ModelSetup
) -> Submission:
    """The request, checked against what the ranks will hold."""
    limits = setup.capacity.limits
    context = replace(limits, context_tokens=setup.config.max_position_embeddings)
    given = {"stop_token_ids": list(setup.config.eos_token_ids), **parameters}
    submission = parse_submission({"prompt_token_ids": prompt, **given}, context)
    refused = refusal(submission, limits, waiting=0, waiting_max=1)
    if refused is not None:
        raise refused
    return submission


def complete(
    session: ModelSession, submission: Submission, step_tokens: int
) -> tuple[tuple[Token, ...], Outcome]:
    """Run one request to its end on a loaded, idle session."""
    scheduler = Scheduler(session.limits, step_tokens=step_tokens, waiting_max=1)
    updates = list(scheduler.submit(0, submission))
    tokens: list[Token] = []
    while True:
        for update in updates:
            match update:
                case Token():
                    tokens.append(update)
                case Finished(outcome=outcome, error=error):
                    if error is not None:
                        raise error
                    return tuple(tokens), outcome
        plan = scheduler.plan()
        if plan is None:
            raise TPError("generate.stalled", "the request neither runs nor ends")
        report = session.step(plan)
        sampled = tuple(a for a in report.artifacts if isinstance(a, SampledToken))
        updates = list(scheduler.commit(StepResult(plan.step, sampled)))
