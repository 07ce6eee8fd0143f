"""Signals turned into one exception, held back where something must not be half done."""

from __future__ import annotations

import os
import signal

import pytest

from coordinator.interruption import SIGNALS, Interruption, held, interruptible

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def _handlers_are_as_before() -> None:
    """Whatever the shell that runs the tests ignores."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_raised(number: signal.Signals) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    with pytest.raises(Interruption) as stop, interruptible():
        send(number)
    assert (stop.value.number, stop.value.exit_code) == (number, EXIT_CODES[number])
    assert str(stop.value) == number.name
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_only_the_first_is_raised() -> None:
    """What follows is the clean-up, and that must not be cut in two."""
    cleaned = []

    def work() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            for number in SIGNALS:
                send(number)
            cleaned.append(True)

    with pytest.raises(Interruption) as stop, interruptible():
        work()
    assert (stop.value.number, cleaned) == (signal.SIGTERM, [True])


def test_what_the_caller_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible():
        send(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_held_back_to_the_end_of_the_outermost_block() -> None:
    steps = []

    def work() -> None:
        with held():
            send(signal.SIGINT)
            steps.append("inner")
        steps.append("outer")

    with pytest.raises(Interruption), interruptible(), held():
        work()
    assert steps == ["inner", "outer"]


def test_held_back_over_a_failure() -> None:
    def work() -> None:
        send(signal.SIGINT)
        raise OSError("meanwhile")

    with pytest.raises(Interruption) as stop, interruptible(), held():
        work()
    assert isinstance(stop.value.__context__, OSError)


def test_nothing_is_raised_where_nothing_came() -> None:
    with interruptible(), held():
        pass
    with pytest.raises(ZeroDivisionError), held():
        raise ZeroDivisionError


def test_one_that_was_raised_is_over() -> None:
    for _ in range(2):
        with pytest.raises(Interruption), interruptible(), held():
            send(signal.SIGINT)
    with held():
        pass
