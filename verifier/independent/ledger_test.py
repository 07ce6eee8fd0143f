"""Ledgers recomputed from the tapes of the shared vectors."""

from __future__ import annotations

import canonical
import frames
import ledger
import pytest
import vectors
from case_checks import first_difference

FILE = vectors.load("ledger")
RUNS = vectors.by_id("ledger")
AGREEMENTS = vectors.by_id("metadata", rule="agreement")


def replayed(name: str) -> list[ledger.Turn]:
    """The tape of a vector, judged against the metadata that its events demand."""
    vector = RUNS[name]
    steps = [
        ledger.Step(
            event["do"],
            FILE["rank"],
            event["kind"],
            "",
            0,
            0,
            event["metadata"].encode("ascii"),
            8 if event["kind"] in frames.TENSOR_KINDS else 0,
        )
        for event in vector["events"]
    ]
    return ledger.replay(
        frames.read_tape(bytes.fromhex(vector["tape"])),
        {FILE["rank"]: steps},
        FILE["phases"],
        FILE["first_epoch"],
        deadline=vector["events"][-1]["then"] == "deadline",
    )


@pytest.mark.parametrize("name", RUNS)
def test_ledger_and_totals(name: str) -> None:
    turns = replayed(name)
    lines = [canonical.encode(ledger.entry(index, turn)) for index, turn in enumerate(turns)]
    assert [line.decode("ascii") for line in lines] == RUNS[name]["ledger"]
    accounts = ledger.accounts(turns)
    assert {key: getattr(accounts, key) for key in RUNS[name]["totals"]} == RUNS[name]["totals"]


@pytest.mark.parametrize("name", AGREEMENTS)
def test_the_first_differing_key_is_named(name: str) -> None:
    vector = AGREEMENTS[name]
    said = first_difference(bytes.fromhex(vector["data"]), bytes.fromhex(vector["agreed"]))
    named = None if vector["result"] == "valid" else vector["differs"]
    assert said.split(" ")[0] == (named or "equal")
