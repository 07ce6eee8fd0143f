"""`serve` over HTTP: everything put together. Imported only when it is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TextIO

from starlette.routing import BaseRoute, Route

from coordinator.command_serve import say, settings_ms
from coordinator.deadlines import default_ms, render_deadlines
from coordinator.model_run import ModelBindings
from coordinator.model_setup import ModelSetup, set_up
from coordinator.service_options import HttpOptions, ServeOptions
from coordinator.service_run import served_model
from coordinator.serving.access import AccessRules, read_api_key
from coordinator.serving.api import api_routes
from coordinator.serving.api_options import ApiOptions
from coordinator.serving.app import make_app
from coordinator.serving.backend import Backend, BackendSettings, OpenRanks
from coordinator.serving.control_thread import ControlThread
from coordinator.serving.garbage import settle
from coordinator.serving.health import HEALTH_PATHS, health_routes
from coordinator.serving.http_limits import STALL_MS, HttpLimits, connections_allowed
from coordinator.serving.http_server import HttpServer, listen, url_of
from coordinator.serving.lifecycle import Lifecycle, News, Texts
from coordinator.serving.observation import Observation, ObserveOptions
from coordinator.serving.observe import observe_routes
from coordinator.serving.page import page_routes
from coordinator.serving.rank_loads import RankLoads
from coordinator.serving.restarts import RestartPolicy
from coordinator.serving.served import Served
from coordinator.serving.stacks import dump_stacks_on_signal
from coordinator.serving.steps import StepLog
from coordinator.serving.text import ModelText
from errors import MisuseError
from manifest.run_manifest import RunManifest
from wire.socket_pipe import Listener


@dataclass(frozen=True)
class HttpService:
    """All parties of one server, before anything is loaded. log: its last steps.

    run: serves until a signal, a failure or `backend.stop`; the exit code, see `Lifecycle.run`.
    """

    url: str
    backend: Backend
    log: StepLog
    run: Callable[[], int]


def serve_http(options: ServeOptions, bindings: ModelBindings, log: TextIO) -> int:
    """Serves until a signal or a failure; the exit code, see `Lifecycle.run`.

    Raises ConfigError before anything is started.
    """
    with http_service(options, bindings, log) as service:
        return service.run()


@contextmanager
def http_service(
    options: ServeOptions, bindings: ModelBindings, log: TextIO
) -> Iterator[HttpService]:
    """Addresses and files are taken. Raises ConfigError."""
    http = options.http
    if http is None:
        raise MisuseError("without a port nobody could reach it")
    setup = set_up(options.manifest, bindings.machine)
    text = ModelText.load(Path(setup.source.checkpoint))
    limits = _limits(http)
    page = page_routes()
    rules = _rules(http, page)
    news = News()
    with ExitStack() as stack:
        stack.callback(dump_stacks_on_signal(log))
        listener = stack.enter_context(closing(listen(http.host, http.port)))
        bound = None
        if options.control is not None:
            bound = stack.enter_context(closing(Listener(options.control)))
        # After the addresses: a server that has them already keeps its traces.
        observation = _observation(http, bindings, log)
        stack.callback(observation.close)
        opener = _Opener(setup, bindings, observation)
        backend = _backend(options, http, opener, news)
        opener.served = backend
        control = None
        if bound is not None:
            control = ControlThread(bound, backend, news.set)
            stack.callback(control.close)
        routes = [
            *health_routes(backend, lambda: backend.ready_once),
            *api_routes(backend, text, _api_options(http), observation.metrics),
            *observe_routes(backend, observation.log, observation.metrics),
            *page,
        ]
        say(log, render_deadlines(settings_ms(options)))
        server = HttpServer(make_app(routes, rules, limits), limits, default_ms("flush"))
        url = url_of(listener)
        parties = Lifecycle(
            backend,
            server,
            control,
            news,
            drain_ms=options.drain_ms,
            texts=_texts(url, backend, options),
            log=log,
        )
        yield HttpService(url, backend, observation.log, partial(parties.run, listener))


class _Opener:
    """Opens sets of ranks, each observed from its start to its end.

    served: what opens them, which exists later.
    """

    def __init__(self, setup: ModelSetup, bindings: ModelBindings, watcher: Observation) -> None:
        self.setup = setup
        self.loads = RankLoads(setup, time.monotonic)
        self.served: Served | None = None
        self._bindings = replace(bindings, watch=self.loads.watching(bindings.watch))
        self._observation = watcher

    @contextmanager
    def open(
        self, manifest: RunManifest, killable: Callable[[Callable[[], None]], None]
    ) -> Iterator[OpenRanks]:
        """See `backend.OpenModel`."""
        if self.served is None:
            raise MisuseError("ranks are opened before there is anything to serve them")
        with (
            self._observation.epoch(manifest.epoch, self.served) as seen,
            served_model(
                self.setup, manifest, self._bindings, seen.recorder, killable, seen.observer
            ) as model,
        ):
            settle()
            yield model


def _observation(http: HttpOptions, bindings: ModelBindings, log: TextIO) -> Observation:
    options = ObserveOptions(http.trace, http.chrome_trace, http.dump_dir)

    def tell(sentence: str) -> None:
        say(log, f"{sentence}\n")

    return Observation(options, source=bindings.source, clock=time.monotonic, tell=tell)


def _backend(options: ServeOptions, http: HttpOptions, opener: _Opener, news: News) -> Backend:
    settings = BackendSettings(
        waiting_max=options.waiting_max,
        heartbeat_s=options.heartbeat_ms / 1000,
        linger_s=http.linger_ms / 1000,
        policy=RestartPolicy(http.restart_policy),
        created=int(time.time()),
    )
    return Backend(
        opener.setup,
        options.manifest,
        settings,
        opener.open,
        opener.loads,
        clock=time.monotonic,
        changed=news.set,
    )


def _api_options(http: HttpOptions) -> ApiOptions:
    return ApiOptions(
        body_bytes_max=http.body_bytes,
        body_ms=http.request_ms,
        queue_ms=http.queue_ms,
        send_ms=STALL_MS,
    )


def _limits(http: HttpOptions) -> HttpLimits:
    return HttpLimits(http.body_bytes, connections_allowed(http.connections), http.request_ms)


def _rules(http: HttpOptions, page: list[BaseRoute]) -> AccessRules:
    """The page's files hold no secret; it asks for the key when it asks for anything else."""
    key = None if http.api_key_file is None else read_api_key(http.api_key_file)
    return AccessRules(
        api_key=key,
        health_paths=HEALTH_PATHS,
        open_paths={route.path for route in page if isinstance(route, Route)},
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
