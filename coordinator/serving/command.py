"""`serve` over HTTP: everything put together. Imported only when it is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from ipaddress import ip_address
from typing import TextIO

from starlette.routing import BaseRoute

from coordinator.command_serve import say, settings_ms
from coordinator.deadlines import default_ms, render_deadlines
from coordinator.model_run import ModelBindings
from coordinator.model_setup import ModelSetup, set_up
from coordinator.service_options import HttpOptions, ServeOptions
from coordinator.service_run import served_model
from coordinator.serving.access import AccessRules, read_api_key
from coordinator.serving.app import make_app
from coordinator.serving.backend import Backend, BackendSettings, OpenModel, OpenRanks
from coordinator.serving.control_thread import ControlThread
from coordinator.serving.health import HEALTH_PATHS, health_routes
from coordinator.serving.http_limits import HttpLimits, connections_possible
from coordinator.serving.http_server import HttpServer, listen, url_of
from coordinator.serving.lifecycle import Lifecycle, News, Texts
from coordinator.serving.rank_loads import RankLoads
from coordinator.serving.restarts import RestartPolicy
from errors import ConfigError, MisuseError
from manifest.run_manifest import RunManifest
from wire.recorder import Recorder
from wire.socket_pipe import Listener


def serve_http(options: ServeOptions, bindings: ModelBindings, log: TextIO) -> int:
    """Serves until a signal or a failure; the exit code, see `Lifecycle.run`.

    Raises ConfigError before anything is started.
    """
    http = options.http
    if http is None:
        raise MisuseError("without a port nobody could reach it")
    setup = set_up(options.manifest, bindings.machine)
    limits = _limits(http)
    rules = _rules(http)
    news = News()
    backend = _backend(options, http, setup, bindings, news)
    app = make_app(_routes(backend), rules, limits)
    with ExitStack() as stack:
        listener = stack.enter_context(closing(listen(http.host, http.port)))
        control = None
        if options.control is not None:
            bound = stack.enter_context(closing(Listener(options.control)))
            control = ControlThread(bound, backend, news.set)
            stack.callback(control.close)
        say(log, render_deadlines(settings_ms(options)))
        server = HttpServer(app, limits, default_ms("flush"))
        texts = _texts(url_of(listener), backend, options)
        parties = Lifecycle(
            backend, server, control, news, drain_ms=options.drain_ms, texts=texts, log=log
        )
        return parties.run(listener)


def _routes(backend: Backend) -> list[BaseRoute]:
    return [*health_routes(backend, lambda: backend.ready_once)]


def _backend(
    options: ServeOptions, http: HttpOptions, setup: ModelSetup, bindings: ModelBindings, news: News
) -> Backend:
    loads = RankLoads(setup, time.monotonic)
    settings = BackendSettings(
        waiting_max=options.waiting_max,
        heartbeat_s=options.heartbeat_ms / 1000,
        linger_s=http.linger_ms / 1000,
        policy=RestartPolicy(http.restart_policy),
        created=int(time.time()),
    )
    opened = _opener(setup, replace(bindings, watch=loads.watching(bindings.watch)))
    return Backend(
        setup,
        options.manifest,
        settings,
        opened,
        loads,
        clock=time.monotonic,
        changed=news.set,
    )


def _opener(setup: ModelSetup, bindings: ModelBindings) -> OpenModel:
    def opened(
        manifest: RunManifest, killable: Callable[[Callable[[], None]], None]
    ) -> AbstractContextManager[OpenRanks]:
        recorder = Recorder(keep_bytes=False)
        return served_model(setup, manifest, bindings, recorder, killable)

    return opened


def _limits(http: HttpOptions) -> HttpLimits:
    possible = connections_possible()
    if http.connections > possible:
        rule = f"must be at most {possible} here: a process may have so many descriptors"
        raise ConfigError.single("--max-connections", http.connections, rule)
    return HttpLimits(http.body_bytes, http.connections, http.request_ms)


def _rules(http: HttpOptions) -> AccessRules:
    key = None if http.api_key_file is None else read_api_key(http.api_key_file)
    return AccessRules(
        api_key=key,
        open_paths=HEALTH_PATHS,
        loopback_only=key is None and ip_address(http.host).is_loopback,
    )


def _texts(url: str, backend: Backend, options: ServeOptions) -> Texts:
    limits = backend.limits
    ranks = options.manifest.ranks
    control = "" if options.control is None else f" and {options.control}"
    return Texts(
        listening=f"listening at {url}; loading {backend.model_id} over {ranks} ranks\n",
        ready=(
            f"serving at {url}{control}: model {backend.model_id} ({backend.program}), {ranks} "
            f"ranks, {limits.slots} requests at once, {limits.context_tokens} tokens each, "
            f"{limits.pages} pages of {limits.page_tokens} tokens, {options.waiting_max} may wait\n"
        ),
    )
