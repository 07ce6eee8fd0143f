"""A server that ends as soon as it is to; for tests, which start hundreds."""

from __future__ import annotations

import asyncio

from uvicorn.server import Server

_LOOK_S = 0.005


class PromptEnd(Server):
    """Notices at once that it is to end; uvicorn looks ten times a second."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await asyncio.sleep(_LOOK_S)
