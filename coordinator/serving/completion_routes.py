"""POST /v1/completions and POST /v1/chat/completions: from a body to choices."""

from __future__ import annotations

from coordinator.serving.chat_body import DEFAULT_TOKENS as CHAT_TOKENS
from coordinator.serving.chat_body import parse_chat
from coordinator.serving.choice import Choice
from coordinator.serving.completion_body import DEFAULT_TOKENS as COMPLETION_TOKENS
from coordinator.serving.completion_body import parse_completion
from coordinator.serving.front import Front
from coordinator.serving.generate_route import GenerateRoute, Prepared
from coordinator.serving.generation import Generation
from coordinator.serving.parameters import submission_of
from coordinator.serving.shapes import ChatShape, CompletionShape
from program.strict_json import JsonObject


class CompletionRoute(GenerateRoute):
    """Text goes on."""

    path = "/v1/completions"

    def __init__(self, front: Front) -> None:
        super().__init__(front, CompletionShape(front.text))

    async def prepare(self, body: JsonObject, arrived: float) -> Prepared:
        front, served = self._front, self._front.served
        parsed = parse_completion(body, served.model_id, served.limits, front.options)
        choices = []
        for index, prompt in enumerate(parsed.prompts):
            text = prompt if isinstance(prompt, str) else ""
            ids = await front.encode(text) if isinstance(prompt, str) else prompt
            submission = submission_of(
                parsed.common,
                ids,
                "prompt",
                served.limits,
                default_tokens=COMPLETION_TOKENS,
                eos_token_ids=served.eos_token_ids,
            )
            generation = Generation(
                front.text,
                submission,
                parsed.common.stop,
                echo=text if parsed.echo else "",
                echo_ids=ids if parsed.echo and not isinstance(prompt, str) else (),
            )
            choices.append(Choice(index, submission, generation, arrived))
        return Prepared(choices, parsed.common)


class ChatRoute(GenerateRoute):
    """A conversation goes on."""

    path = "/v1/chat/completions"

    def __init__(self, front: Front) -> None:
        super().__init__(front, ChatShape(front.text))

    async def prepare(self, body: JsonObject, arrived: float) -> Prepared:
        front, served = self._front, self._front.served
        parsed = parse_chat(body, served.model_id, served.limits)
        ids = await front.encode(await front.render(parsed.conversation))
        submission = submission_of(
            parsed.common,
            ids,
            "messages",
            served.limits,
            default_tokens=CHAT_TOKENS,
            eos_token_ids=served.eos_token_ids,
        )
        generation = Generation(front.text, submission, parsed.common.stop)
        return Prepared([Choice(0, submission, generation, arrived)], parsed.common)
