"""The executor of Qwen3.5: one rank's half of both programs, for many requests at once.

A step runs the rows of a plan as one [tokens, hidden] matrix. Each stage ends in this rank's
summand of a collective; a linear-attention layer that is not sharded is local work before the next
stage and needs none. What a plan may ask is decided by program/slots.py, the same table on every
rank. It must not know frames, other ranks or scheduling policy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from errors import MisuseError
from model.crew import SOLO, Crew
from model.ops import Array, rms_norm
from model.qwen35_layers import Span, Sublayers
from model.qwen35_weights import AttentionWeights, LinearAttentionWeights, Qwen35Weights
from model.rope import inverse_frequencies, rotary_table
from model.sampling import TokenHistory, sample, score
from model.state import PageTable, RankState
from program.artifacts import ArtifactValue
from program.plan import Admit, PlanLimits, Row, Sample, Score, StepPlan
from program.qwen35 import Qwen35Config, Variant, local_dimensions, mixer_phase
from program.slots import SlotTable, apply, check
from program.spec import ProgramSpec

# Positions whose logits exist at the same time when many are wanted: 16 rows of the published
# vocabulary in float32 are 16 MiB.
LOGIT_ROWS: Final = 16


@dataclass(frozen=True)
class StepOutcome:
    """What a rank hands back. Digests are equal on all ranks; only the primary has artifacts.

    state_digest: over slots, requests, generations, computed tokens and pages after the step.
    hidden_digest: SHA-256 of the hidden state [tokens, hidden] after the last stage.
    """

    state_digest: str
    hidden_digest: str
    artifacts: tuple[ArtifactValue, ...]


@dataclass(frozen=True)
class _Request:
    """What the executor keeps of a resident request beside the slot table."""

    admit: Admit
    pages: PageTable
    history: TokenHistory


@dataclass(frozen=True)
class _Stage:
    """local: layers to run whole before the stage. is_mlp: which sublayer of `layer` it is."""

    local: tuple[int, ...]
    layer: int
    is_mlp: bool


class Qwen35Executor:
    """Calls come in session order: begin, then partial and reduced of every stage, then finish.

    limits: slots, pages and tokens per step that all ranks agreed on. crew: the rank's threads, as
    given to `load_weights`. poison: memory that belongs to no request is NaN (tests). table: who
    holds which slot and pages. After an error in the middle of a step the executor is useless.
    """

    def __init__(
        self,
        config: Qwen35Config,
        program: ProgramSpec,
        weights: Qwen35Weights,
        limits: PlanLimits,
        *,
        crew: Crew = SOLO,
        poison: bool = False,
    ) -> None:
        self._config = config
        self._weights = weights
        self._compute = np.dtype(program.partial_dtype.value)
        self._stages = tuple(_stages(config, program))
        self._ordinals = _ordinals(config)
        self.state = RankState(
            program, limits.slots, limits.pages, limits.page_tokens, poison=poison
        )
        local = local_dimensions(config, Variant(program.name), program.world_size)
        self._sublayers = Sublayers(config, local, self.state, crew)
        self._frequencies = inverse_frequencies(config.rotary_dim, config.rope_theta, self._compute)
        self.table = SlotTable.empty(limits)
        self._requests: dict[int, _Request] = {}
        self._rows: tuple[Row, ...] = ()
        self._spans: tuple[Span, ...] = ()
        self._hidden: Array = np.zeros((1, config.hidden_size), self._compute)
        self._rotation: tuple[Array, Array] = (self._hidden, self._hidden)

    @property
    def stage_count(self) -> int:
        return len(self._stages)

    def check(self, plan: StepPlan) -> None:
        """Raises what `begin` raises; changes nothing."""
        check(plan, self.table)

    def begin(self, plan: StepPlan) -> tuple[int, int]:
        """Apply the plan's transitions and embed its rows: the shape of every partial of the step.

        Raises ContractError when the plan contradicts the limits or the table; nothing has changed
        then.
        """
        self.table = apply(plan, self.table)
        page_tokens = self.table.limits.page_tokens
        for release in plan.releases:
            leaving = self._requests.pop(release.request_id)
            self.state.release(release.slot, leaving.admit.pages)
        for admit in plan.admissions:
            self.state.admit(admit.slot)
            pages = PageTable(admit.pages, page_tokens)
            history = TokenHistory(admit.prompt_tokens)
            self._requests[admit.request_id] = _Request(admit, pages, history)
        for move in plan.moves:
            self.state.move(move.from_slot, move.to_slot)
        self._rows = plan.rows
        self._spans = tuple(self._lay_out(plan))
        self._embed(plan)
        return self._hidden.shape[0], self._hidden.shape[1]

    def partial(self, stage: int) -> Array:
        """This rank's summand of the stage: [operand rows, hidden]."""
        current = self._stages[stage]
        if not self._spans:
            return np.zeros_like(self._hidden)
        for layer in current.local:
            self._hidden += self._mixer(layer)
        if current.is_mlp:
            layer_weights = self._weights.layers[current.layer]
            return self._sublayers.mlp(layer_weights.mlp, self._normed(layer_weights.mlp_scale))
        return self._mixer(current.layer)

    def reduced(self, stage: int, total: Array) -> None:
        """Add the sum over ranks of the stage's partials: the residual is added here, once."""
        if total.shape != self._hidden.shape or total.dtype != self._compute:
            raise MisuseError(f"the total of stage {stage} is {total.dtype} {total.shape}")
        if self._spans:
            self._hidden += total

    def finish(self) -> StepOutcome:
        """Digests, and on the primary rank what the rows wanted.

        Raises NumericsError when logits are not finite.
        """
        hidden_digest = hashlib.sha256(np.ascontiguousarray(self._hidden).data).hexdigest()
        artifacts: tuple[ArtifactValue, ...] = ()
        if self._weights.head is not None:
            artifacts = tuple(self._artifacts())
        return StepOutcome(self.table.digest(), hidden_digest, artifacts)

    def logits(self, row: Row, first: int, last: int) -> Array:
        """Logits after tokens first .. last - 1 of a row of this step: [last - first, vocab].

        To be called between the last `reduced` and the next `begin`, on the primary rank.
        """
        (span,) = [span for span in self._spans if span.slot == row.slot]
        start = span.tokens.start
        return self._logits_of(self._hidden[start + first : start + last])

    def _logits_of(self, hidden: Array) -> Array:
        """[tokens, hidden] -> [tokens, vocab]."""
        if self._weights.head is None:
            raise MisuseError("logits are computed on the primary rank only")
        normed = rms_norm(hidden, self._weights.final_scale, self._config.rms_norm_eps)
        return self._weights.head(normed)

    def _sampled_logits(self) -> Iterator[Array]:
        """[vocab] of each row that samples, in order.

        The head is the largest weight, and a product reads all of it however few its rows are, so
        LOGIT_ROWS requests share one.
        """
        ends = {span.slot: span.tokens.stop - 1 for span in self._spans}
        places = [ends[row.slot] for row in self._rows if isinstance(row.artifact, Sample)]
        for first in range(0, len(places), LOGIT_ROWS):
            yield from self._logits_of(self._hidden[places[first : first + LOGIT_ROWS]])

    def _lay_out(self, plan: StepPlan) -> Iterator[Span]:
        """Where each row's tokens lie in the step's matrix; rows without tokens have no place."""
        offset = 0
        for row in plan.rows:
            count = len(row.token_ids)
            request = self._requests[row.request_id]
            request.history.extend(row.token_ids)
            if count:
                tokens = slice(offset, offset + count)
                yield Span(row.slot, row.start_position, tokens, request.pages)
            offset += count

    def _embed(self, plan: StepPlan) -> None:
        if not self._spans:
            self._hidden = np.zeros((1, self._config.hidden_size), self._compute)
            return
        token_ids = [token for row in plan.rows for token in row.token_ids]
        self._hidden = self._weights.embedding.rows(np.array(token_ids, np.int64))
        positions = [np.arange(span.start, span.start + span.count) for span in self._spans]
        self._rotation = rotary_table(np.concatenate(positions), self._frequencies)

    def _normed(self, scale: Array) -> Array:
        return rms_norm(self._hidden, scale, self._config.rms_norm_eps)

    def _mixer(self, layer: int) -> Array:
        weights = self._weights.layers[layer]
        normed, ordinal = self._normed(weights.input_scale), self._ordinals[layer]
        match weights.mixer:
            case AttentionWeights() as mixer:
                return self._sublayers.attention(
                    mixer, ordinal, normed, self._spans, self._rotation
                )
            case LinearAttentionWeights() as mixer:
                return self._sublayers.linear_attention(mixer, ordinal, normed, self._spans)

    def _artifacts(self) -> Iterator[ArtifactValue]:
        sampled = self._sampled_logits()
        for row in self._rows:
            count = len(row.token_ids)
            match row.artifact:
                case Sample() as wanted:
                    request = self._requests[row.request_id]
                    if request.admit.sampling is None:
                        raise MisuseError(f"request {row.request_id} has no sampling parameters")
                    yield sample(
                        row.request_id,
                        next(sampled),
                        request.admit.sampling,
                        request.history,
                        wanted,
                    )
                case Score(last, top):
                    digest = hashlib.sha256()
                    for first in range(count - last, count, LOGIT_ROWS):
                        stop = min(first + LOGIT_ROWS, count)
                        part = Row(
                            row.request_id, row.slot, row.start_position, row.token_ids[:stop]
                        )
                        logits = self.logits(row, first, stop)
                        digest.update(np.ascontiguousarray(logits).data)
                        scored = score(part, logits, Score(stop - first, top))
                        yield from scored if stop < count else scored[:-1]
                    yield replace(scored[-1], logits_sha256=digest.hexdigest())
                case None:
                    pass


def _ordinals(config: Qwen35Config) -> dict[int, int]:
    """Layer -> its index among the layers of its type, which is its place in the state."""
    groups = (config.linear_layers, config.full_layers)
    return {layer: ordinal for group in groups for ordinal, layer in enumerate(group)}


def _stages(config: Qwen35Config, program: ProgramSpec) -> Iterator[_Stage]:
    """The program's stages with the local work before each, in order."""
    collective = set(program.phases)
    local: list[int] = []
    for layer in range(len(config.layer_types)):
        if mixer_phase(layer) in collective:
            yield _Stage(tuple(local), layer, False)
            local.clear()
        else:
            local.append(layer)
        yield _Stage(tuple(local), layer, True)
        local.clear()
