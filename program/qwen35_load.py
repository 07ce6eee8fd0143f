"""What ACK and LOAD say about a Qwen3.5 program, as values and as JSON (docs/spec/program.md, Q).

ACK names the checkpoint and the element type of the arithmetic: from these a rank derives the whole
program and proves it by the digest. LOAD says how to hold weights and state. Exact keys; outside
values are refused with ContractError `contract.metadata`. It must not know files or frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final

from errors import ConfigError, ContractError
from program.plan import PlanLimits
from program.qwen35_memory import WeightsDtype
from program.spec import Dtype

CHECKPOINT_CHARACTERS_MAX: Final = 4096
CPUS_MAX: Final = 1024


@dataclass(frozen=True)
class ModelSource:
    """ACK's parameters. checkpoint: absolute path of the folder, the same for every rank."""

    checkpoint: str
    compute: Dtype

    def to_json(self) -> dict[str, str]:
        return {"checkpoint": self.checkpoint, "compute": self.compute.value}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> ModelSource:
        _keys(value, ("checkpoint", "compute"))
        checkpoint = _checked(value, "checkpoint", _is_path, "an absolute path")
        compute = _checked(value, "compute", _is_dtype, "<f4 or <f8")
        return cls(str(checkpoint), Dtype(compute))


@dataclass(frozen=True)
class LoadOrder:
    """LOAD's parameters.

    cpus: logical processors the rank binds itself to, empty for none. check_weights: refuse NaN and
    infinity. poison_state: fill memory of nobody with NaN, for tests.
    """

    limits: PlanLimits
    weights_dtype: WeightsDtype
    cpus: tuple[int, ...] = ()
    check_weights: bool = False
    poison_state: bool = False

    def to_json(self) -> dict[str, object]:
        return {
            "check_weights": self.check_weights,
            "cpus": list(self.cpus),
            "limits": asdict(self.limits),
            "poison_state": self.poison_state,
            "weights_dtype": self.weights_dtype.value,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> LoadOrder:
        _keys(value, ("check_weights", "cpus", "limits", "poison_state", "weights_dtype"))
        cpus = _checked(value, "cpus", _is_cpus, "an array of different processor numbers")
        held = _checked(value, "weights_dtype", _is_weights_dtype, "auto, float32 or bfloat16")
        return cls(
            limits=_limits(value["limits"]),
            weights_dtype=WeightsDtype(held),
            cpus=tuple(cpus) if isinstance(cpus, list) else (),
            check_weights=_flag(value, "check_weights"),
            poison_state=_flag(value, "poison_state"),
        )


def _limits(value: object) -> PlanLimits:
    if not isinstance(value, dict):
        raise ContractError("metadata", "limits must be an object")
    names = tuple(field.name for field in fields(PlanLimits))
    _keys(value, names)
    try:
        return PlanLimits(**{name: value[name] for name in names})
    except ConfigError as failure:
        raise ContractError("metadata", f"limits: {failure.message}") from None


def _keys(value: Mapping[str, object], keys: tuple[str, ...]) -> None:
    if set(value) != set(keys):
        raise ContractError("metadata", f"keys are {sorted(value)}, agreed {sorted(keys)}")


def _checked(
    value: Mapping[str, object], key: str, accepts: Callable[[object], bool], rule: str
) -> object:
    if not accepts(value[key]):
        raise ContractError("metadata", f"{key} is {str(value[key])[:80]}, agreed {rule}")
    return value[key]


def _flag(value: Mapping[str, object], key: str) -> bool:
    return _checked(value, key, lambda item: isinstance(item, bool), "true or false") is True


def _is_path(value: object) -> bool:
    return (
        isinstance(value, str)
        and value.startswith("/")
        and len(value) <= CHECKPOINT_CHARACTERS_MAX
        and "\0" not in value
    )


def _is_dtype(value: object) -> bool:
    return any(value == dtype.value for dtype in Dtype)


def _is_weights_dtype(value: object) -> bool:
    return any(value == dtype.value for dtype in WeightsDtype)


def _is_cpus(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= CPUS_MAX
        and all(type(cpu) is int and 0 <= cpu < CPUS_MAX for cpu in value)
        and len(set(value)) == len(value)
    )
