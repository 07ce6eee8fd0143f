"""Every way in which a request can leave, as small scenes on an idle service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordinator.gates.live import Live, Request
from coordinator.request import Outcome, RequestEvent
from errors import TPError

CLIENT_EVENTS: Final = {
    RequestEvent.CANCEL: Outcome.CANCELLED,
    RequestEvent.DISCONNECT: Outcome.DISCONNECTED,
    RequestEvent.DROP: Outcome.DROPPED,
}
LONG: Final = tuple(range(40, 70))
SHORT: Final = (9, 4, 7)
Scene = Callable[[Live], None]


def _demand(request: Request, outcome: Outcome) -> None:
    if request.end.outcome is not outcome:
        raise AssertionError(f"{request.end.outcome}, expected {outcome}")


def length(service: Live) -> None:
    _demand(service.alone(LONG, 6), Outcome.LENGTH)


def stop_token(service: Live) -> None:
    """The stop token is one that the model chooses."""
    first = service.alone(SHORT, 4)
    stopped = service.alone(SHORT, 40, stop_token_ids=[first.token_ids[1]])
    _demand(stopped, Outcome.STOP)


def stop_string(service: Live) -> None:
    request = service.submit(SHORT, 40)
    service.turns(3)
    service.end(request, RequestEvent.STOP)
    service.finish()
    _demand(request, Outcome.STOP)


def one_token_in_a_mixed_step(service: Live) -> None:
    """It ends with its first prefill, beside a decode and a prefill that go on."""
    decoding = service.submit(SHORT, 8)
    service.turns(1)
    prefilling = service.submit(LONG, 3)
    service.turns(1)
    single = service.submit(SHORT, 1)
    service.finish()
    for request in (decoding, prefilling, single):
        _demand(request, Outcome.LENGTH)


def ended_in_queue(event: RequestEvent) -> Scene:
    def scene(service: Live) -> None:
        holders = [service.submit(SHORT, 6) for _ in range(service.setup.capacity.limits.slots)]
        waiting = service.submit(LONG, 6)
        service.turns(1)
        service.end(waiting, event)
        service.finish()
        _demand(waiting, CLIENT_EVENTS[event])
        if waiting.end.step is not None or waiting.tokens:
            raise AssertionError("a request that waited was known to a rank")
        for holder in holders:
            _demand(holder, Outcome.LENGTH)

    return scene


def ended_before_it_was_seen(event: RequestEvent) -> Scene:
    def scene(service: Live) -> None:
        request = service.submit(LONG, 6)
        service.end(request, event)
        service.finish()
        _demand(request, CLIENT_EVENTS[event])

    return scene


def ended_in_prefill(event: RequestEvent) -> Scene:
    """After its second chunk of four."""

    def scene(service: Live) -> None:
        request = service.submit(LONG, 6)
        service.turns(2)
        service.end(request, event)
        service.finish()
        _demand(request, CLIENT_EVENTS[event])
        if request.tokens:
            raise AssertionError("a token came of an unfinished prefill")

    return scene


def ended_in_decode(event: RequestEvent) -> Scene:
    def scene(service: Live) -> None:
        request = service.submit(SHORT, 40)
        service.turns(3)
        seen = len(request.tokens)
        service.end(request, event)
        service.finish()
        _demand(request, CLIENT_EVENTS[event])
        if len(request.tokens) != seen:
            raise AssertionError("a token followed the client's end")

    return scene


def ended_twice(service: Live) -> None:
    request = service.submit(SHORT, 40)
    service.turns(2)
    service.end(request, RequestEvent.DISCONNECT)
    service.end(request, RequestEvent.CANCEL)
    service.turns(1)
    service.end(request, RequestEvent.DROP)
    service.finish()
    _demand(request, Outcome.DISCONNECTED)


def rejected(service: Live) -> None:
    """It could never fit; it is refused at once, beside one that runs."""
    running = service.submit(SHORT, 6)
    service.turns(1)
    limits = service.setup.capacity.limits
    tokens = limits.pages * limits.page_tokens + 2 - len(SHORT)
    impossible = service.submit(SHORT, tokens)
    service.turns(1)
    _demand(impossible, Outcome.REJECTED)
    service.finish()
    _demand(running, Outcome.LENGTH)


def refused(service: Live) -> None:
    """Parameters that no rank ever hears of."""
    try:
        service.submit(SHORT, 4, prefix_reuse=True)
    except TPError as error:
        if error.code != "request.unsupported":
            raise
    else:
        raise AssertionError("prefix reuse was accepted")


def compaction(service: Live) -> None:
    """The lowest of three leaves; the highest moves into its slot and goes on."""
    requests = [service.submit((base, base + 1, base + 2), 12) for base in (10, 20, 30)]
    service.turns(3)
    service.end(requests[0], RequestEvent.CANCEL)
    service.finish()
    if not any(step.plan.moves for step in service.steps):
        raise AssertionError("nobody moved")
    for request in requests[1:]:
        _demand(request, Outcome.LENGTH)


def reuse_within_one_plan(service: Live) -> None:
    """A slot's holder leaves and the next enters in the same step."""
    slots = service.setup.capacity.limits.slots
    requests = [service.submit((3 + n, 50 - n), 3 + n) for n in range(3 * slots)]
    service.finish()
    for request in requests:
        _demand(request, Outcome.LENGTH)
    if not any(step.plan.releases and step.plan.admissions for step in service.steps):
        raise AssertionError("no slot changed its owner within a plan")


def _scenes() -> dict[str, Scene]:
    scenes: dict[str, Scene] = {
        scene.__name__: scene
        for scene in (
            length,
            stop_token,
            stop_string,
            one_token_in_a_mixed_step,
            ended_twice,
            rejected,
            refused,
            compaction,
            reuse_within_one_plan,
        )
    }
    places = (ended_in_queue, ended_before_it_was_seen, ended_in_prefill, ended_in_decode)
    for place in places:
        for event in CLIENT_EVENTS:
            scenes[f"{event.value}_{place.__name__}"] = place(event)
    return scenes


SCENES: Final = _scenes()
