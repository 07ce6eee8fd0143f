"""One digest per meaning: equal specs agree, and every change of a spec changes it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from errors import MisuseError
from program.block import WORLD_SIZES, block_spec
from program.digest import program_digest, program_json
from program.partition import Columns, Replicated, Rows, Section, Sections
from program.spec import Dtype, Loading, ProgramSpec, Stage, StateScope, StateSpec, WeightSpec

DIGESTS = {
    1: "ebde5fc9136d9b9e2c99c16b0ac50731aba0e4de5e039406e5e19878a6098ffc",
    2: "41de5a7ab0a43f971e97926f0c15c326ace2bd73547d21dce9a378f869321205",
    4: "ee5b0f0e715e07602cdd05f1db46d8da91786635f9001e2d08f947181652fb2d",
}
SPEC_TEXT = Path("docs/spec/program.md").read_text("utf-8")


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_check_values(world_size: int) -> None:
    assert program_digest(block_spec(world_size)) == DIGESTS[world_size]


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_the_document_states_the_digests(world_size: int) -> None:
    assert DIGESTS[world_size] in SPEC_TEXT


def test_the_document_spells_the_json_out() -> None:
    assert program_json(block_spec(2)).decode("ascii") in SPEC_TEXT.replace("\n", "")


def test_the_digest_is_of_the_canonical_bytes() -> None:
    data = program_json(block_spec(2))
    again = json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"))
    assert again.encode("ascii") == data
    assert hashlib.sha256(data).hexdigest() == program_digest(block_spec(2))


def changed(**fields: Any) -> ProgramSpec:
    return dataclasses.replace(block_spec(2), **fields)


WEIGHTS = block_spec(2).weights
STATE = StateSpec("conv", (2, 3), 4, StateScope.SLOT)
CHANGES = {
    "the same": changed(),
    "name": changed(name="other"),
    "world size": changed(world_size=4),
    "hidden size": changed(hidden_size=32),
    "order of weights": changed(weights=WEIGHTS[::-1]),
    "a weight less": changed(weights=WEIGHTS[1:]),
    "a stage more": changed(stages=(*block_spec(2).stages, Stage("extra"))),
    "loading": changed(loading=Loading.LOCAL),
    "artifact ranks": changed(artifact_ranks=(0,)),
    "partial dtype": changed(partial_dtype=Dtype.FLOAT64),
    "folded": changed(folded=True),
    "planned": changed(loading=Loading.LOCAL, planned=True),
    "arithmetic": changed(arithmetic="native"),
    "state": changed(state=(STATE,)),
    "state shape": changed(state=(dataclasses.replace(STATE, local_shape=(3, 2)),)),
    "state item": changed(state=(dataclasses.replace(STATE, item_bytes=8),)),
    "state scope": changed(state=(dataclasses.replace(STATE, scope=StateScope.TOKEN),)),
    "columns for rows": changed(weights=(WeightSpec("wq", (16, 16), Columns(4)),)),
    "rows": changed(weights=(WeightSpec("wq", (16, 16), Rows(4)),)),
    "more rows": changed(weights=(WeightSpec("wq", (16, 16), Rows(8)),)),
    "replicated": changed(weights=(WeightSpec("wq", (16, 16), Replicated()),)),
    "sections": changed(weights=(WeightSpec("wq", (16, 16), Sections((Section(8, 2),))),)),
    "sections of other units": changed(
        weights=(WeightSpec("wq", (16, 16), Sections((Section(4, 4),))),)
    ),
}


def test_a_program_with_plans_is_not_loaded_over_the_wire() -> None:
    with pytest.raises(MisuseError):
        changed(planned=True)


def test_every_change_of_a_spec_changes_the_digest() -> None:
    digests = {what: program_digest(spec) for what, spec in CHANGES.items()}
    assert digests["the same"] == DIGESTS[2]
    assert len(set(digests.values())) == len(CHANGES)
