"""The loads of `bench serve`: who asks what, and when. Chance comes from a seed alone."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tools.bench.serve_client import DONE, Answer, Endpoint, stream

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
# Of the mixed load every so many-th request is a long one.
LONG_EVERY = 4


@dataclass(frozen=True)
class Asking:
    """What requests look like. prompt, tokens, long: in tokens. vocabulary: ids below it are sent.

    clients: closed loop. requests: per load. rate: arrivals per second of the open loop.
    """

    model: str
    vocabulary: int
    prompt: int
    tokens: int
    long: int
    clients: int
    requests: int
    rate: float
    turns: int
    seed: int
    timeout_s: float


class Load:
    """Sends requests. asked: how many; answers: those that have ended, however they did."""

    def __init__(self, endpoint: Endpoint, asking: Asking) -> None:
        self.asked = 0
        self.answers: list[Answer] = []
        self.asking = asking
        self._endpoint = endpoint
        self._random = random.Random(asking.seed)

    async def closed(self) -> None:
        """Each client sends its next request when the last one has ended."""
        await self._clients([self.completion] * self.asking.requests)

    async def open(self) -> None:
        """Poisson arrivals: requests come whether or not earlier ones have ended."""
        gaps = poisson_gaps(self.asking.rate, self.asking.requests, self.asking.seed)
        start = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for offset in accumulate(gaps):
                await asyncio.sleep(start + offset - asyncio.get_running_loop().time())
                group.create_task(self.completion(due=start + offset))

    async def turns(self) -> None:
        """Conversations: each turn sends the whole talk so far."""
        conversations = max(1, self.asking.requests // self.asking.turns)
        await self._clients([self._conversation] * conversations)

    async def mixed(self) -> None:
        """Long prompts among short ones, closed loop."""
        work = [
            self._long if number % LONG_EVERY == LONG_EVERY - 1 else self.completion
            for number in range(self.asking.requests)
        ]
        await self._clients(work)

    async def storm(self) -> None:
        """Most clients leave: right after sending, or after some tokens. The rest stay."""

        async def leaving() -> None:
            patience = self._random.choice([0, 1, 2, self.asking.tokens // 2, None])
            await self.completion(kind="stays" if patience is None else "leaves", leave=patience)

        await self._clients([leaving] * self.asking.requests)

    async def probe(self) -> Answer:
        """One plain request, after whatever was before."""
        return await self.completion(kind="probe")

    async def completion(
        self,
        kind: str = "short",
        *,
        due: float | None = None,
        prompt: int | None = None,
        leave: int | None = None,
    ) -> Answer:
        body = completion_body(self.asking, self.asked, prompt or self.asking.prompt)
        return await self._send(kind, COMPLETIONS, body, due, leave)

    async def _long(self) -> None:
        await self.completion("long", prompt=self.asking.long)

    async def _conversation(self) -> None:
        messages: list[dict[str, str]] = []
        for turn in range(self.asking.turns):
            messages.append({"role": "user", "content": f"and {turn + 1}?"})
            body = {
                "model": self.asking.model,
                "messages": list(messages),
                "max_tokens": self.asking.tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            answer = await self._send(f"turn {turn + 1}", CHAT, body, None, None)
            if answer.end != DONE:
                return
            messages.append({"role": "assistant", "content": text_of(answer)})

    async def _send(
        self,
        kind: str,
        path: str,
        body: Mapping[str, object],
        due: float | None,
        leave: int | None,
    ) -> Answer:
        answer = Answer(kind, asyncio.get_running_loop().time() if due is None else due)
        self.asked += 1
        await stream(
            self._endpoint,
            path,
            body,
            answer,
            timeout_s=self.asking.timeout_s,
            leave_after=leave,
        )
        self.answers.append(answer)
        return answer

    async def _clients(self, work: Sequence[Callable[[], Awaitable[object]]]) -> None:
        """`clients` at once, in the order of `work`."""
        due = iter(work)

        async def client() -> None:
            for ask in due:
                await ask()

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.asking.clients, len(work))):
                group.create_task(client())


def completion_body(asking: Asking, number: int, prompt: int) -> dict[str, object]:
    """A greedy request for exactly `asking.tokens` tokens; prompts differ by number."""
    return {
        "model": asking.model,
        "prompt": [1 + (7 * at + 13 * number) % (asking.vocabulary - 1) for at in range(prompt)],
        "max_tokens": asking.tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def poisson_gaps(rate: float, count: int, seed: int) -> list[float]:
    """Seconds between arrivals, exponentially distributed with mean 1 / rate."""
    source = random.Random(seed)
    return [source.expovariate(rate) for _ in range(count)]


def text_of(answer: Answer) -> str:
    """All text of a stream, of either interface."""
    return "".join(text for _, text in texts_of(answer))


def texts_of(answer: Answer) -> list[tuple[float, str]]:
    """When text came: events that carry none (roles, usage, the finish reason) are left out."""
    found = []
    for at, event in answer.events:
        for choice in chunk_of(event).get("choices") or ():
            text = choice.get("text") or (choice.get("delta") or {}).get("content")
            if text:
                found.append((at, str(text)))
    return found


def chunk_of(event: bytes) -> dict[str, list[dict[str, dict[str, object]]]]:
    """The object of one event of a server that is trusted to send what it documents."""
    found: dict[str, list[dict[str, dict[str, object]]]] = json.loads(event.removeprefix(b"data: "))
    return found
