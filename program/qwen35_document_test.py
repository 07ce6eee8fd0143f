"""docs/spec/program.md, clauses Q, holds what the code does: digests, dimensions, keys and sums."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from program.digest import program_digest, program_document
from program.partition import OnRank
from program.plan import PlanLimits
from program.qwen35 import (
    HEAD,
    Qwen35Config,
    Variant,
    local_dimensions,
    qwen35_program,
    working_degrees,
)
from program.qwen35_config import parse_config, read_config
from program.qwen35_load import LoadOrder, ModelSource
from program.qwen35_memory import WeightsDtype
from program.spec import Dtype
from testdata.golden.shapes import BASE, config

TEXT = Path("docs/spec/program.md").read_text("utf-8")
TINY = read_config(Path("testdata/tiny-qwen35"))
FOUR_B = replace(
    BASE,
    pattern="LLLF" * 8,
    vocab=248320,
    hidden=2560,
    intermediate=9216,
    heads=16,
    kv_heads=4,
    head_dim=256,
    key_heads=16,
    value_heads=32,
    key_dim=128,
    value_dim=128,
)


@pytest.fixture(scope="module")
def four_b() -> Qwen35Config:
    return parse_config(json.dumps(config(FOUR_B)).encode("ascii"))


@pytest.mark.parametrize("variant", list(Variant))
def test_the_check_values_are_the_digests_of_the_shipped_model(variant: Variant) -> None:
    assert working_degrees(TINY, variant) == (1, 2, 4)
    for world_size in (1, 2, 4):
        digest = program_digest(qwen35_program(TINY, variant, world_size))
        assert f"| `{variant.value}` | {world_size} | `{digest}` |" in TEXT


@pytest.mark.parametrize(
    "name",
    [
        "local_attention_heads",
        "local_key_value_heads",
        "local_intermediate_size",
        "local_linear_key_heads",
        "local_linear_value_heads",
        "local_q_dim",
        "local_v_dim",
        "local_qkv_dim",
    ],
)
def test_the_rank_local_dimensions_of_the_4b_model(four_b: Qwen35Config, name: str) -> None:
    (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| `{name}`")]
    values = [getattr(local_dimensions(four_b, Variant.SHARDED, r), name) for r in (1, 2, 4)]
    assert row.rpartition("|")[0].rpartition("| ")[2].strip() == " / ".join(map(str, values))


def test_equal_dimensions_share_a_row(four_b: Qwen35Config) -> None:
    local = local_dimensions(four_b, Variant.SHARDED, 2)
    assert "| `local_q_dim`, `local_k_dim` |" in TEXT
    assert local.local_q_dim == local.local_k_dim
    assert "| `local_v_dim`, `local_z_dim` |" in TEXT
    assert local.local_v_dim == local.local_z_dim


def test_collectives_and_payload_of_a_step_of_the_4b_model(four_b: Qwen35Config) -> None:
    stages = {v: len(qwen35_program(four_b, v, 2).stages) for v in Variant}
    assert stages == {Variant.SHARDED: 64, Variant.REPLICATED: 40}
    assert "64 and 40 for the 4B model" in TEXT
    payload = {v: 2 * 2 * count * four_b.hidden_size * 4 for v, count in stages.items()}
    sharded, replicated = payload[Variant.SHARDED], payload[Variant.REPLICATED]
    assert f"{sharded:,} bytes sharded and {replicated:,} replicated" in TEXT


def test_keys_of_ack_and_load_are_those_of_the_document() -> None:
    limits = PlanLimits(8, 8, 1, 1, 8, 8)
    load = LoadOrder(limits, WeightsDtype.AUTO).to_json()
    source = ModelSource("/m", Dtype.FLOAT32).to_json()
    for heading, keys in (("Q2. ACK", source), ("Q4. LOAD", load)):
        clause = TEXT.partition(f"**{heading} parameters.**")[2].partition("**Q")[0]
        assert all(f"`{key}`" in clause for key in keys)


def test_constants_and_rules_of_the_digest() -> None:
    untied = qwen35_program(replace(TINY, tie_word_embeddings=False), Variant.SHARDED, 1)
    document = program_document(untied)
    constants, weights = document["constants"], document["weights"]
    assert isinstance(constants, dict)
    clause = TEXT.partition("**Q10. Constants**")[2].partition("**Q11")[0]
    assert all(f"`{name}`" in clause for name in constants)
    assert isinstance(weights, list)
    assert weights[-1] == {"name": HEAD, "rule": ["on_rank", 0], "shape": [1024, 192]}
    assert untied.weights[-1].rule == OnRank(0)
