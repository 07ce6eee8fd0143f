"""Mistakes of a server, planted in the state between two steps: each must fail the float64 gate.

One golden prompt is run in two parts on two ranks. Between them the state of slot 0 is damaged as a
server with the named mistake would leave it. With the state as it should be, the gate passes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from model.golden_gates import Folders, float64_gate
from model.lockstep import Lockstep, Requests, open_ranks
from model.ops import Array
from model.state import RankState
from program.qwen35 import Variant
from program.spec import Dtype
from testdata.golden import golden_loader

SHAPE = "base"
SEQUENCE = golden_loader.load_short(SHAPE)[10]  # a prompt of 100 tokens
FIRST = 64
Snapshot = tuple[Array, Array]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Folders(tmp_path_factory.mktemp("golden"))[SHAPE]


def opened(folder: Path) -> Lockstep:
    return open_ranks(folder, Variant.SHARDED, 2, compute=Dtype.FLOAT64, slots=2, pages=32)


def snapshots(ranks: Lockstep, slot: int = 0) -> list[Snapshot]:
    """Recurrent and convolution state of a slot, by rank."""
    states = [executor.state for executor in ranks.executors]
    return [(state.recurrent[:, slot].copy(), state.conv[:, slot].copy()) for state in states]


def state_after(folder: Path, token_ids: list[int]) -> list[Snapshot]:
    """What a run over exactly these tokens leaves behind."""
    ranks = opened(folder)
    requests = Requests(ranks)
    requests.admit(0, len(token_ids))
    requests.run({0: token_ids})
    return snapshots(ranks)


def prompt(count: int) -> list[int]:
    return [int(token) for token in SEQUENCE.ids[:count]]


def put(states: list[RankState], taken: list[Snapshot], *, conv: bool, recurrent: bool) -> None:
    for state, (recurrent_state, conv_state) in zip(states, taken, strict=True):
        if recurrent:
            state.recurrent[:, 0] = recurrent_state
        if conv:
            state.conv[:, 0] = conv_state


Damage = Callable[[Path, list[RankState]], None]


def from_tokens(token_ids: list[int], *, conv: bool = True, recurrent: bool = True) -> Damage:
    """The state is that of a run over other tokens."""

    def damage(folder: Path, states: list[RankState]) -> None:
        put(states, state_after(folder, token_ids), conv=conv, recurrent=recurrent)

    return damage


def zeroed(*, conv: bool, recurrent: bool) -> Damage:
    def damage(folder: Path, states: list[RankState]) -> None:
        empty = [(np.zeros_like(s.recurrent[:, 0]), np.zeros_like(s.conv[:, 0])) for s in states]
        put(states, empty, conv=conv, recurrent=recurrent)

    return damage


def counted_twice(folder: Path, states: list[RankState]) -> None:
    for state in states:
        state.recurrent[:, 0] *= 2


def exchanged(folder: Path, states: list[RankState]) -> None:
    first, second = (state.recurrent[:, 0].copy() for state in states)
    states[0].recurrent[:, 0], states[1].recurrent[:, 0] = second, first


def all_reduced(folder: Path, states: list[RankState]) -> None:
    total = states[0].recurrent[:, 0] + states[1].recurrent[:, 0]
    for state in states:
        state.recurrent[:, 0] = total


def neighbour(folder: Path, states: list[RankState]) -> None:
    for state in states:
        state.recurrent[:, 0] = state.recurrent[:, 1]


def lost_context(folder: Path, states: list[RankState]) -> None:
    """Keys and values of the first page belong to the other request."""
    for state in states:
        state.keys[:, :, :16] = state.keys[:, :, -16:]
        state.values[:, :, :16] = state.values[:, :, -16:]


# Between two steps: what a server did to the state of slot 0 after FIRST tokens.
DAMAGES: dict[str, Damage] = {
    "hit restores keys and values only": zeroed(conv=True, recurrent=True),
    "hit without recurrent state": zeroed(conv=False, recurrent=True),
    "hit without convolution state": zeroed(conv=True, recurrent=False),
    "hit with recurrent state of 8 tokens later": from_tokens(prompt(FIRST + 8), conv=False),
    "rollback of 8 tokens cuts keys and values only": from_tokens(prompt(FIRST + 8)),
    "hit with the checkpoint of another boundary": from_tokens(prompt(32)),
    "preempted request runs again over its old state": from_tokens(prompt(FIRST) * 2),
    "padded by 1 token": from_tokens([*prompt(FIRST), 0]),
    "padded by 3 tokens": from_tokens([*prompt(FIRST), *[0] * 3]),
    "padded by 24 tokens": from_tokens([*prompt(FIRST), *[0] * 24]),
    "left padding of 5 tokens masked in attention only": from_tokens([*[0] * 5, *prompt(FIRST)]),
    "idle decode lane writes one token": from_tokens([*prompt(FIRST), 1]),
    "recurrent state counted twice": counted_twice,
    "recurrent state of the neighbour's slot": neighbour,
    "recurrent states exchanged between ranks": exchanged,
    "recurrent state all-reduced": all_reduced,
    "keys and values of another request's page": lost_context,
}


def run_with(folder: Path, damage: Damage | None) -> Array:
    ranks = opened(folder)
    requests = Requests(ranks)
    requests.admit(0, len(SEQUENCE.ids), tuple(range(7)))
    requests.admit(1, FIRST, tuple(range(28, 32)))
    other = [int(token) for token in SEQUENCE.ids[-FIRST:]]
    parts = [requests.run({0: prompt(FIRST), 1: other})[0]]
    if damage is not None:
        damage(folder, [executor.state for executor in ranks.executors])
    parts.append(requests.run({0: SEQUENCE.ids[FIRST:]})[0])
    return np.concatenate(parts)[SEQUENCE.positions]


def restored(folder: Path, states: list[RankState]) -> None:
    """All of the state is put back as a run over the same tokens leaves it."""
    put(states, state_after(folder, prompt(FIRST)), conv=True, recurrent=True)


@pytest.mark.parametrize("damage", [None, restored], ids=["untouched", "restored"])
def test_the_state_as_it_should_be_passes(folder: Path, damage: Damage | None) -> None:
    float64_gate([run_with(folder, damage)], [SEQUENCE])


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_state_is_caught(folder: Path, name: str) -> None:
    with pytest.raises(AssertionError):
        float64_gate([run_with(folder, DAMAGES[name])], [SEQUENCE])


def second_tenant(folder: Path) -> Array:
    """Another request leaves and this one takes its slot and pages within one plan."""
    ranks = opened(folder)
    requests = Requests(ranks)
    pages = tuple(range(7))
    requests.admit(0, FIRST, pages[:4])
    requests.run({0: SEQUENCE.ids[-FIRST:]})
    requests.release(0)
    requests.admit(0, len(SEQUENCE.ids), pages)
    return requests.run({0: SEQUENCE.ids})[0][SEQUENCE.positions]


def test_a_second_tenant_of_a_slot_starts_clean(folder: Path) -> None:
    float64_gate([second_tenant(folder)], [SEQUENCE])


def test_a_slot_that_was_not_zeroed_is_caught(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = RankState.admit

    def first_only(self: RankState, slot: int) -> None:
        if not np.isfinite(self.recurrent[:, slot]).all():
            admit(self, slot)

    monkeypatch.setattr(RankState, "release", lambda self, slot, pages: None)
    monkeypatch.setattr(RankState, "admit", first_only)
    with pytest.raises(AssertionError):
        float64_gate([second_tenant(folder)], [SEQUENCE])


def test_a_slot_that_was_never_zeroed_is_not_a_number(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RankState, "admit", lambda self, slot: None)
    with np.errstate(invalid="ignore"):
        assert np.isnan(second_tenant(folder)).all()
