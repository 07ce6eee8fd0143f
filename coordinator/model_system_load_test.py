"""What each rank of a real load reads, holds and needs: its own shard, and never the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.model_cases import (
    SMALL,
    WEIGHTS,
    bindings,
    large_model,
    model_run,
    small_model,
)
from coordinator.model_run import ModelBindings, running_model
from coordinator.model_setup import RESERVE_BYTES, ModelSetup, set_up
from manifest.run_manifest import RunManifest
from wire.canonical import JsonValue
from wire.recorder import Recorder

MIB = 1 << 20
# 230 MB, of which 2 MB (embedding and norms) are on every rank.
HEAVY = replace(
    SMALL, vocab=1024, hidden=1024, intermediate=8192, key_dim=64, value_dim=64, head_dim=64
)
# Two bfloat16 near 0.01, so that no page of the file is one of zeros.
BLOCK = bytes.fromhex("243c21bc") * (MIB // 4)


def loaded(
    manifest: RunManifest, given: ModelBindings | None = None
) -> tuple[ModelSetup, list[dict[str, JsonValue]]]:
    """Load, and leave."""
    used = bindings() if given is None else given
    setup = set_up(manifest, used.machine, positions_max=64)
    with running_model(setup, manifest, used, Recorder(keep_bytes=False)) as session:
        return setup, [dict(report) for report in session.reports]


def number(report: dict[str, JsonValue], key: str) -> int:
    value = report[key]
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize("program", ["sharded", "replicated"])
def test_a_rank_reads_and_holds_its_shard_and_never_the_model(tmp_path: Path, program: str) -> None:
    folder = large_model(tmp_path / "model", HEAVY, BLOCK)
    whole = (folder / WEIGHTS).stat().st_size
    setup, reports = loaded(model_run(folder, program=f"qwen35/{program}"))
    for rank, report in enumerate(reports):
        budget = setup.capacity.ranks[rank]
        held, read = number(report, "bytes_held"), number(report, "bytes_read")
        assert held == budget.weight_bytes
        assert number(report, "state_bytes") == setup.capacity.state_bytes(rank)
        # Vectors are held wider than they are stored, nothing else is.
        assert read <= held <= read + MIB
        peak = number(report, "peak_rss_bytes")
        need = held + number(report, "state_bytes")
        assert need < peak < need + RESERVE_BYTES
        assert peak < whole
    assert whole > 200 * MIB
    assert sum(number(report, "bytes_read") for report in reports) < 1.1 * whole


def test_weights_are_widened_on_request_only(tmp_path: Path) -> None:
    folder = small_model(tmp_path / "model", replace(SMALL, dtype="bfloat16"))
    held = {}
    for choice in ("auto", "float32", "bfloat16"):
        _, reports = loaded(model_run(folder, ranks=1, model__weights_dtype=choice))
        held[choice] = number(reports[0], "bytes_held")
    assert held["auto"] == held["bfloat16"]
    assert 1.9 * held["auto"] < held["float32"] <= 2 * held["auto"]
