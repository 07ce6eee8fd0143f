"""The digest by which two sides prove that they mean the same program (docs/spec/program.md, P2).

Everything that decides what travels or what is computed is in it: names, shapes, cuts, order of
weights and stages, state, element types, arithmetic. Nothing else is.
"""

from __future__ import annotations

from program.canonical import canonical_json, digest
from program.partition import Columns, OnRank, Replicated, Rows, Sections, ShardRule
from program.spec import ProgramSpec


def program_document(spec: ProgramSpec) -> dict[str, object]:
    """The spec as the JSON object of clause P2, which leaves out what a program does not use."""
    constants = {"constants": dict(spec.constants)} if spec.constants else {}
    planned = {"planned": True} if spec.planned else {}
    return {
        **constants,
        **planned,
        "arithmetic": spec.arithmetic,
        "artifact_ranks": list(spec.artifact_ranks),
        "folded": spec.folded,
        "hidden_size": spec.hidden_size,
        "loading": spec.loading.value,
        "name": spec.name,
        "partial_dtype": spec.partial_dtype.value,
        "stages": list(spec.phases),
        "state": [
            {
                "item_bytes": state.item_bytes,
                "name": state.name,
                "scope": state.scope.value,
                "shape": list(state.local_shape),
            }
            for state in spec.state
        ],
        "weights": [
            {"name": weight.name, "rule": _rule(weight.rule), "shape": list(weight.shape)}
            for weight in spec.weights
        ],
        "world_size": spec.world_size,
    }


def program_json(spec: ProgramSpec) -> bytes:
    """The canonical bytes that are digested."""
    return canonical_json(program_document(spec))


def program_digest(spec: ProgramSpec) -> str:
    """SHA-256 of `program_json`, 64 hexadecimal digits."""
    return digest(program_document(spec))


def _rule(rule: ShardRule) -> list[object]:
    match rule:
        case Replicated():
            return ["replicated"]
        case OnRank(rank):
            return ["on_rank", rank]
        case Rows(units):
            return ["rows", units]
        case Columns(units):
            return ["columns", units]
        case Sections(sections):
            return ["sections", *([section.units, section.unit_size] for section in sections)]
