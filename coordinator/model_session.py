"""A loaded model over its ranks: one step at a time, with everything a step must agree on checked.

The group moves frames; this file knows plans and reports. It must not know requests, policy or
where the ranks come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from coordinator.group import Agreement, Group, GroupDeadlines, StepInput
from coordinator.model_setup import ModelSetup
from errors import ContractError, MisuseError
from program.canonical import digest
from program.plan import PlanLimits, StepPlan
from program.plan_codec import encode_plan
from program.qwen35 import PRIMARY_RANK
from program.slots import SlotTable, apply
from program.step_report import RESULT_TENSOR, StepReport, decode_report
from wire.canonical import JsonObject, JsonValue
from wire.link import Link


class ModelSession:
    """links: one per rank, greeted, in rank order. reports: what each rank's load said."""

    def __init__(
        self,
        setup: ModelSetup,
        links: Sequence[Link],
        deadlines: GroupDeadlines,
        *,
        first_epoch: int,
        sum_order: str,
    ) -> None:
        self.limits: PlanLimits = setup.capacity.limits
        self.reports: list[Mapping[str, JsonValue]] = []
        agreement = Agreement(
            spec=setup.spec,
            program_digest=setup.program_digest,
            parameters=setup.source.to_json(),
            first_epoch=first_epoch,
            sum_order=sum_order,
        )
        self.group = Group(agreement, links, deadlines)
        # Of the last complete step, in rank order; empty before the first.
        self.last_reports: tuple[StepReport, ...] = ()
        self._setup = setup
        self._table = SlotTable.empty(self.limits)

    def load(self) -> None:
        """Agree on the program and let every rank load. Raises PeerError.

        A rank that holds other state than its budget says is an accidental replica, and refused.
        """
        self.group.open()
        self.reports = self.group.load_local(lambda rank: _json(self._setup.loads[rank].to_json()))
        for rank, report in enumerate(self.reports):
            agreed = self._setup.capacity.state_bytes(rank)
            if report.get("state_bytes") != agreed:
                failure = ContractError(
                    "allocation",
                    f"state_bytes is {report.get('state_bytes')}, agreed {agreed}",
                    rank=rank,
                    phase="load",
                )
                self.group.stop(failure)
                raise failure

    @property
    def table(self) -> SlotTable:
        """Who holds which slot and pages after the last step."""
        return self._table

    def step(self, plan: StepPlan, meanwhile: Callable[[], None] = lambda: None) -> StepReport:
        """Run one step; the primary rank's report, once all ranks agree (docs/spec/plan.md L20).

        meanwhile: see `Group.run_step`. Raises PeerError, which ends the session. MisuseError for a
        plan that contradicts the table.
        """
        try:
            following = apply(plan, self._table)
        except ContractError as refusal:
            raise MisuseError(f"own plan refused: {refusal.message}") from refusal
        shape = (plan.operand_rows, self._setup.spec.hidden_size)
        encoded = encode_plan(plan)
        agreed = ("", "")

        def digested_meanwhile() -> None:
            nonlocal agreed
            agreed = (digest(encoded), following.digest())
            # Last: whoever it wakes has the interpreter's lock until the first rank answers.
            meanwhile()

        given = StepInput(shape=shape, plan=_json(encoded))
        results = self.group.run_step(given, digested_meanwhile)
        reports: list[StepReport] = []
        for result in results:
            try:
                report = self._report(result.report, bytes(result.payload), plan, result.rank)
                if result.tensor != RESULT_TENSOR:
                    raise ContractError("metadata", f"tensor is {result.tensor!r}")
                reports.append(report)
                _demand_agreement(report, reports[0], agreed)
            except ContractError as refused:
                failure = refused.located(result.rank, "result")
                self.group.stop(failure)
                raise failure from None
        self._table = following
        self.last_reports = tuple(reports)
        return reports[0]

    def close(self) -> None:
        self.group.close()

    def _report(self, value: object, payload: bytes, plan: StepPlan, rank: int) -> StepReport:
        return decode_report(value, payload, plan, self.limits, primary=rank == PRIMARY_RANK)


def _demand_agreement(report: StepReport, primary: StepReport, agreed: tuple[str, str]) -> None:
    if (report.plan_digest, report.state_digest) != agreed:
        received = (report.plan_digest, report.state_digest)
        raise ContractError(
            "ranks_disagree", f"digests of plan and state are {received}, agreed {agreed}"
        )
    if report.hidden_digest != primary.hidden_digest:
        raise ContractError(
            "ranks_disagree",
            f"hidden_digest is {report.hidden_digest}, rank 0's is {primary.hidden_digest}",
        )


def _json(value: Mapping[str, object]) -> JsonObject:
    """The codecs of program/ give JSON values; that package can't name wire's type for them."""
    return cast(JsonObject, value)
