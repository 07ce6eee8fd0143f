"""Make transformers compute Qwen3.5 in float64 from end to end.

`model.double()` alone does not: the module casts to float32 in its norms, its softmax, its gates,
its whole delta rule and its rope tables.  Inside `redirected()` those casts go to float64.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling


class _Float64Torch(ModuleType):
    """Stands for `torch` inside the modelling module: the same, but float32 means float64."""

    float32 = float = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def redirected() -> Iterator[None]:
    """Within the block, a model that `widened` prepared runs in float64 throughout."""
    narrow = torch.Tensor.float

    def widen(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.double()

    modeling.torch = _Float64Torch("torch")
    torch.Tensor.float = widen
    try:
        yield
    finally:
        modeling.torch = torch
        torch.Tensor.float = narrow


def widened(model: PreTrainedModel) -> PreTrainedModel:
    """`model` in float64, in place; the rope frequencies are computed anew, not widened."""
    model = model.double()
    with redirected():
        for module in model.modules():
            if isinstance(module, modeling.Qwen3_5TextRotaryEmbedding):
                module.inv_freq, _ = module.compute_default_rope_parameters(module.config)
    return model
