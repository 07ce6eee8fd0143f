"""Clients of another process, reading every event or a whole answer at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from errors import TPError
from tools.bench.serve_client import Endpoint
from tools.bench.serve_fake import ASKING, Fake
from tools.bench.serve_loads import completion_body
from tools.bench.serve_reader import Reader, forked_clients

BODIES = [completion_body(ASKING, number, 3) | {"max_tokens": 6} for number in range(3)]


def waves(fake: Fake, ways: Sequence[bool]) -> list[float]:
    with forked_clients() as ours:

        async def run() -> list[float]:
            async with fake.running() as endpoint:
                reader = Reader(Endpoint(endpoint.host, endpoint.port), 20.0, ours)
                return [await asyncio.to_thread(reader.wave, BODIES, whole=whole) for whole in ways]

        return asyncio.run(run())


def test_both_ways_read_to_the_end() -> None:
    fake = Fake(gap_s=0.02)
    used = waves(fake, [True, False, True])
    assert len(fake.requests) == 9
    assert fake.live == 0
    assert all(seconds > 0 for seconds in used)


@pytest.mark.parametrize("whole", [True, False])
def test_a_bad_end_is_told(whole: bool) -> None:
    with pytest.raises(TPError) as caught:
        waves(Fake(cut_every=2), [whole])
    assert caught.value.code == "bench.failed"


def test_nobody_listens() -> None:
    with forked_clients() as ours, pytest.raises(TPError) as caught:
        Reader(Endpoint("127.0.0.1", 9), 20.0, ours).wave(BODIES, whole=True)
    assert caught.value.code == "bench.failed"
