"""docs/spec/plan.md holds what the code does: example, digests, limits and ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from program.canonical import canonical_json
from program.plan import (
    ARTIFACT_PAIRS_MAX,
    LOGIT_BIAS_ENTRIES_MAX,
    PLAN_BYTES_MAX,
    SLOTS_MAX,
    TOP_MAX,
    tokens_per_step_max,
)
from program.plan_cases import SECOND, table_after_first
from program.plan_codec import encode_plan, plan_digest
from program.sampling_rules import BIAS_LIMIT, REAL_RANGES
from program.slots import apply

TEXT = Path("docs/spec/plan.md").read_text("utf-8")


def test_the_example_is_spelled_out() -> None:
    assert canonical_json(encode_plan(SECOND)).decode("ascii") in TEXT.replace("\n", "")


def test_the_digests_of_the_example() -> None:
    before = table_after_first()
    rows = {
        "state before": before.digest(),
        "plan": plan_digest(SECOND),
        "state after": apply(SECOND, before).digest(),
    }
    for name, value in rows.items():
        assert f"| {name} | `{value}` |" in TEXT


@pytest.mark.parametrize(
    "phrase",
    [
        f"at most {PLAN_BYTES_MAX:,} bytes",
        f"`slots` (1 to {SLOTS_MAX})",
        f"{tokens_per_step_max(1, 1):,} / (element bytes",
        f"at most min({TOP_MAX}, `vocab_size`)",
        f"at most {ARTIFACT_PAIRS_MAX:,} pairs",
        f"at most {LOGIT_BIAS_ENTRIES_MAX} entries of -{BIAS_LIMIT:g} to {BIAS_LIMIT:g}",
    ],
)
def test_limits(phrase: str) -> None:
    assert phrase in TEXT


@pytest.mark.parametrize("name", sorted(REAL_RANGES))
def test_ranges(name: str) -> None:
    (line,) = [line for line in TEXT.splitlines() if line.startswith("|") and f"`{name}`" in line]
    allowed = REAL_RANGES[name]
    low = f"above {allowed.low:g}," if allowed.open_low else f"{allowed.low:g}"
    assert f"| {low} to {allowed.high:g} |" in line
