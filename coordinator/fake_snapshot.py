"""What exists in a service that is in the middle of things; for tests of what is shown of it."""

from __future__ import annotations

from coordinator.engine import EngineSnapshot, RankStatus
from coordinator.request import RequestState
from coordinator.scheduler import Snapshot
from program.plan import Admit, PlanLimits, StepPlan
from program.slots import SlotTable, apply

LIMITS = PlanLimits(
    vocab_size=50, context_tokens=64, slots=2, pages=9, page_tokens=4, tokens_per_step=32
)
TABLE = apply(
    StepPlan(step=0, admissions=(Admit(0, 7, 1, (0, 1, 3), 5, 12, None),)), SlotTable.empty(LIMITS)
)
RANK = RankStatus(0, 4711, {"bytes_held": 10, "state_bytes": 20}, "a" * 64, "b" * 64)
SNAPSHOT = EngineSnapshot(
    scheduler=Snapshot(
        table=TABLE,
        in_flight=1,
        waiting=(8,),
        states=((7, RequestState.RUNNING), (8, RequestState.WAITING)),
    ),
    ranks=(RANK,),
    steps=1,
    failure=None,
    stopping=False,
)
