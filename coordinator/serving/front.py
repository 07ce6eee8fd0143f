"""What all routes of the API share."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from coordinator.serving.api_options import ApiOptions
from coordinator.serving.bridge import Bridge
from coordinator.serving.chat_body import Conversation
from coordinator.serving.choice import Choice
from coordinator.serving.job import Job, Named
from coordinator.serving.request_observer import RequestObserver
from coordinator.serving.requests import LiveRequests
from coordinator.serving.served import Served
from coordinator.serving.text import ModelText

# Shorter texts are encoded at once; a longer one in another thread, so that streams go on.
_ENCODED_AT_ONCE: Final = 2_000
_ID_BYTES: Final = 12


class Front:
    """One model behind one event loop."""

    def __init__(
        self, served: Served, text: ModelText, options: ApiOptions, observer: RequestObserver
    ) -> None:
        self.served = served
        self.text = text
        self.options = options
        self.observer = observer
        queue_s = None if options.queue_ms is None else options.queue_ms / 1000
        self.requests = LiveRequests(served, queue_s)
        self._bridge: Bridge | None = None

    def job(self, prefix: str, endpoint: str, stream: bool, choices: Sequence[Choice]) -> Job:
        """Not yet submitted."""
        named = Named(prefix + secrets.token_hex(_ID_BYTES), endpoint, int(time.time()), stream)
        return Job(
            named, choices, self.served, self._connected(), self.observer, self.requests.remove
        )

    def soon(self, call: Callable[[], None]) -> None:
        """See `Bridge.soon`."""
        self._connected().soon(call)

    async def encode(self, text: str) -> list[int]:
        if len(text) <= _ENCODED_AT_ONCE:
            return self.text.encode(text)
        return await asyncio.to_thread(self.text.encode, text)

    async def render(self, conversation: Conversation) -> str:
        """The prompt's text. Raises RequestError naming `messages`."""
        return await asyncio.to_thread(self._rendered, conversation)

    def _rendered(self, conversation: Conversation) -> str:
        return self.text.chat.render(
            conversation.messages,
            add_generation_prompt=conversation.add_generation_prompt,
            arguments=conversation.arguments,
            seconds=self.options.template_ms / 1000,
            characters_max=self.options.template_characters_max,
        )

    def _connected(self) -> Bridge:
        """The loop exists from the first request on."""
        loop = asyncio.get_running_loop()
        if self._bridge is None or self._bridge.loop is not loop:
            self._bridge = Bridge(loop, self.served.clock)
        return self._bridge
