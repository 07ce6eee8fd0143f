"""One run of the frozen block: connect, load, one step, close; real ranks or simulated ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.group import Agreement, Group, StepInput
from errors import PeerError
from manifest.run_manifest import RunManifest
from program.block import (
    RESULT_TENSOR,
    block_spec,
    input_payload,
    operand_shape,
    weight_payload,
)
from program.digest import program_digest
from program.spec import ProgramSpec
from wire.link import Link
from wire.recorder import Recorder


@dataclass(frozen=True)
class BlockOutcome:
    """What a run left behind: its output, or the failure that stopped it; never both."""

    output: bytes | None
    failure: PeerError | None


def run_block(
    manifest: RunManifest, connect: Callable[[Recorder], tuple[Link, ...]], recorder: Recorder
) -> BlockOutcome:
    """Run the block once over the links that `connect` gives.

    A PeerError ends the run and is the outcome; every link is closed in either case.
    """
    try:
        links = connect(recorder)
    except PeerError as failure:
        return BlockOutcome(None, failure)
    try:
        group = block_group(manifest, links)
        results = group.run_step(block_step(manifest))
    except PeerError as failure:
        return BlockOutcome(None, failure)
    finally:
        for link in links:
            link.close()
    return BlockOutcome(bytes(results[0].payload), None)


def block_group(manifest: RunManifest, links: tuple[Link, ...]) -> Group:
    """A group whose ranks have their weights. Raises PeerError; then its links are closed."""
    group = Group(_agreement(manifest), links, manifest.deadlines)
    group.open()
    group.load_weights(weight_source(manifest.seed, group.spec))
    return group


def weight_source(seed: int, spec: ProgramSpec) -> Callable[[str, int], bytes]:
    """The seeded weights (docs/spec/tensors.md), cut for each rank, as WEIGHT payloads."""
    weights = {weight.name: weight for weight in spec.weights}

    def source(name: str, rank: int) -> bytes:
        return weight_payload(seed, weights[name], rank, spec.world_size)

    return source


def _agreement(manifest: RunManifest) -> Agreement:
    spec = block_spec(manifest.ranks)
    return Agreement(
        spec=spec,
        program_digest=program_digest(spec),
        parameters={},
        first_epoch=manifest.epoch,
        sum_order=manifest.sum_order,
    )


def block_step(manifest: RunManifest) -> StepInput:
    """The one step of a run: the seeded operand, and the output that every rank returns."""
    shape = operand_shape(manifest.batch, manifest.sequence)
    return StepInput(
        shape=shape,
        operand=input_payload(manifest.seed, manifest.batch, manifest.sequence),
        result=(RESULT_TENSOR, shape),
    )
