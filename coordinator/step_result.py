"""What a step produced, held against what its plan asked for.

Only these token ids are ever used: no rank decides anything from its own. It must not know requests
beyond their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from errors import ContractError
from program.artifacts import SampledToken
from program.plan import PlanLimits, Row, Sample, StepPlan


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the ranks agreed on: the step and the primary rank's artifacts in order of rows."""

    step: int
    artifacts: tuple[SampledToken, ...]


def match_artifacts(
    plan: StepPlan, result: StepResult, limits: PlanLimits
) -> dict[int, SampledToken]:
    """The artifacts by request id, when they are exactly those the plan asked for.

    Raises ContractError `contract.metadata` otherwise: step, count, identity, position, number of
    alternatives, token ids within the vocabulary, finite log-probabilities.
    """
    if result.step != plan.step:
        raise ContractError("metadata", f"result of step {result.step}, expected {plan.step}")
    wanted = [row for row in plan.rows if row.artifact is not None]
    if len(wanted) != len(result.artifacts):
        raise ContractError(
            "metadata", f"{len(result.artifacts)} artifacts, expected {len(wanted)}"
        )
    for row, artifact in zip(wanted, result.artifacts, strict=True):
        _check_artifact(row, artifact, limits)
    return {artifact.request_id: artifact for artifact in result.artifacts}


def _check_artifact(row: Row, artifact: SampledToken, limits: PlanLimits) -> None:
    position = row.start_position + len(row.token_ids)
    expected = (row.request_id, position)
    if (artifact.request_id, artifact.position) != expected:
        given = (artifact.request_id, artifact.position)
        raise ContractError(
            "metadata", f"artifact of {given}, expected request, position {expected}"
        )
    logprobs = row.artifact.logprobs if isinstance(row.artifact, Sample) else None
    if logprobs is None and artifact.logprob is None and not artifact.top:
        # Most tokens, on every step.
        if not 0 <= artifact.token_id < limits.vocab_size:
            raise _foreign([artifact.token_id], expected)
        return
    if (artifact.logprob is None) != (logprobs is None) or len(artifact.top) != (logprobs or 0):
        raise ContractError("metadata", f"log-probabilities of {expected} are not those asked for")
    token_ids = [artifact.token_id, *(entry.token_id for entry in artifact.top)]
    if not all(0 <= token_id < limits.vocab_size for token_id in token_ids):
        raise _foreign(token_ids, expected)
    numbers = [entry.logprob for entry in artifact.top]
    numbers += [] if artifact.logprob is None else [artifact.logprob]
    if not all(isfinite(number) for number in numbers):
        raise ContractError("metadata", f"log-probabilities of {expected} are not finite")


def _foreign(token_ids: list[int], expected: tuple[int, int]) -> ContractError:
    return ContractError("metadata", f"token ids {token_ids} of {expected} leave the vocabulary")
