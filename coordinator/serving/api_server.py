"""A real HTTP server on a free loopback port, for tests of the API over `FakeServed`."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

import uvicorn

from coordinator.serving.access import AccessRules
from coordinator.serving.api import api_routes
from coordinator.serving.api_options import ApiOptions
from coordinator.serving.app import make_app
from coordinator.serving.fake_served import FakeServed
from coordinator.serving.http_limits import HttpLimits
from coordinator.serving.http_protocol import guarded
from coordinator.serving.prompt_end import PromptEnd
from coordinator.serving.request_observer import RequestObserver
from coordinator.serving.text import ModelText
from errors import MisuseError

TINY: Final = Path("testdata/tiny-qwen35")
_START_S: Final = 20.0
# Wide enough that only the limits of the routes are met.
_LIMITS: Final = HttpLimits(body_bytes=64 << 20, connections=1_000, request_ms=60_000)
_RULES: Final = AccessRules(
    api_key=None, health_paths=frozenset(), open_paths=frozenset(), loopback_only=False
)


class ApiServer:
    """A context manager; the served model is the caller's.

    send_buffer_bytes: what the kernel keeps for a client that does not read.
    """

    def __init__(
        self,
        served: FakeServed,
        options: ApiOptions | None = None,
        *,
        text: ModelText | None = None,
        observer: RequestObserver | None = None,
        send_buffer_bytes: int | None = None,
    ) -> None:
        routes = api_routes(served, text or ModelText.load(TINY), options, observer)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if send_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            make_app(routes, _RULES, _LIMITS),
            http=guarded(_LIMITS),
            ws="none",
            log_level="critical",
            lifespan="off",
            access_log=False,
        )
        self._server = PromptEnd(config)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ApiServer:
        self._thread.start()
        if not self._ready.wait(_START_S):
            raise MisuseError("the server has not started")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(_START_S)
        self._socket.close()
        if self._thread.is_alive():
            raise MisuseError("the server has not ended")

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._socket.listen(128)
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        self._ready.set()
        await serving
