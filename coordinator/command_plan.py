"""`plan`: what a model's ranks would hold and send, from headers alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.model_setup import Machine, ModelSetup, set_up
from coordinator.terminal import columns, count
from manifest.run_manifest import RunManifest
from program.capacity import RankBudget
from program.spec import StateScope
from wire.agreed import AgreedMetadata
from wire.limits import HEADER_BYTES


@dataclass(frozen=True)
class ModelPlan:
    """A model run that was not started. wire_bytes: of one step with one token, all ranks."""

    setup: ModelSetup
    manifest: RunManifest
    collectives: int
    payload_bytes: int
    framing_bytes: int


def plan(manifest: RunManifest, machine: Callable[[], Machine]) -> ModelPlan:
    """Raises ConfigError for whatever would keep the model from starting."""
    setup = set_up(manifest, machine)
    shape = (1, setup.spec.hidden_size)
    payload = framing = 0
    for rank in range(manifest.ranks):
        agreed = AgreedMetadata(rank, setup.spec.phases, setup.spec.partial_dtype.value)
        for stage in range(len(setup.spec.stages)):
            for frame in (agreed.partial(stage, shape), agreed.reduction(stage, shape)):
                payload += frame.payload_bytes
                framing += HEADER_BYTES + len(frame.metadata)
    return ModelPlan(setup, manifest, len(setup.spec.stages), payload, framing)


def state_bytes(setup: ModelSetup, name: str) -> int:
    """Bytes of one kind of state on a rank, with all slots or pages."""
    limits = setup.capacity.limits
    for state in setup.spec.state:
        if state.name == name:
            tokens = limits.pages * limits.page_tokens
            return state.local_bytes * (limits.slots if state.scope is StateScope.SLOT else tokens)
    return 0


def _rank(setup: ModelSetup, budget: RankBudget) -> dict[str, int]:
    keys_values = state_bytes(setup, "keys") + state_bytes(setup, "values")
    return {
        "rank": budget.rank,
        "memory_bytes": budget.memory_bytes,
        "weight_bytes": budget.weight_bytes,
        "kv_bytes": keys_values,
        "recurrent_bytes": state_bytes(setup, "recurrent"),
        "conv_bytes": state_bytes(setup, "conv"),
        "scratch_bytes": budget.scratch_bytes,
        "reserve_bytes": budget.reserve_bytes,
        "slots": budget.slots,
        "pages": budget.pages,
    }


def render_plan_json(planned: ModelPlan) -> str:
    """One line of JSON with a stable set of keys."""
    setup, limits = planned.setup, planned.setup.capacity.limits
    document = {
        "program": setup.spec.name,
        "tp": planned.manifest.ranks,
        "layers": len(setup.config.layer_types),
        "collectives_per_step": planned.collectives,
        "payload_bytes_per_token": planned.payload_bytes,
        "framing_bytes_per_step": planned.framing_bytes,
        "slots": limits.slots,
        "pages": limits.pages,
        "page_tokens": limits.page_tokens,
        "tokens_per_step": limits.tokens_per_step,
        "context_tokens": limits.context_tokens,
        "skipped_tensors": sum(setup.checkpoint.skipped_tensors.values()),
        "ranks": [_rank(setup, budget) for budget in setup.capacity.ranks],
    }
    return json.dumps(document) + "\n"


def render_plan(planned: ModelPlan) -> str:
    """The page for a terminal."""
    setup, limits = planned.setup, planned.setup.capacity.limits
    config, payload, framing = setup.config, planned.payload_bytes, planned.framing_bytes
    head = ("rank", "weights", "KV", "recurrent", "conv", "scratch", "reserve", "slots", "pages")
    names = ("weight", "kv", "recurrent", "conv", "scratch", "reserve")
    rows: list[tuple[str, ...]] = [head]
    for budget in setup.capacity.ranks:
        values = _rank(setup, budget)
        sizes = [count(values[f"{name}_bytes"]) for name in names]
        rows.append((str(budget.rank), *sizes, count(budget.slots), count(budget.pages)))
    title = f"{setup.spec.name} over {planned.manifest.ranks} ranks"
    pages = f"{limits.pages} pages of {limits.page_tokens} tokens"
    lines = [
        f"{title}, {len(config.layer_types)} layers, hidden {config.hidden_size}",
        "",
        *columns(rows, ">" * len(head)),
        "",
        f"limits       {limits.slots} requests, {pages}, {limits.tokens_per_step} tokens per step",
        f"collectives  {planned.collectives} per step",
        f"payload      {count(payload)} bytes per token",
        f"framing      {count(framing)} bytes of headers and metadata per step",
    ]
    return "\n".join(lines) + "\n"
