"""Logits and states of a checkpoint folder, computed by transformers."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from tools.golden.float64_transformers import redirected, widened

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of logits for a prompt and its decode steps, and the state after the prompt."""

    ids: npt.NDArray[np.int64]  # [prompt + steps]
    logits: Array  # [prompt + steps, vocab], as float64
    states: dict[str, Array]  # "L<layer>.<conv|recurrent|keys|values>"


class Reference:
    """A checkpoint loaded by transformers with eager attention, in float32 or in float64."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        if report["missing_keys"] or report["mismatched_keys"]:
            raise ValueError(f"{folder}: {report}")
        self._dtype = dtype
        self._model = widened(model.eval()) if dtype == torch.float64 else model.eval()
        self.config = model.config.get_text_config()

    def forward(self, ids: npt.NDArray[np.int64], cache: DynamicCache | None = None) -> Array:
        """Logits [len(ids), vocab] of the tokens that follow what `cache` holds; it moves on."""
        context = redirected() if self._dtype == torch.float64 else nullcontext()
        with torch.no_grad(), context:
            batch = torch.from_numpy(ids)[None]
            output = self._model(input_ids=batch, cache=cache, use_cache=cache is not None)
        if output.logits.dtype != self._dtype:
            raise ValueError(f"logits are {output.logits.dtype}, not {self._dtype}")
        logits: Array = output.logits[0].double().numpy()
        return logits

    def empty_cache(self) -> DynamicCache:
        """A cache for a sequence of which nothing has been seen."""
        return DynamicCache(config=self.config)

    def run(
        self,
        prompt: npt.NDArray[np.int64],
        steps: int,
        piece: int,
        continuation: npt.NDArray[np.int64] | None = None,
    ) -> Run:
        """The prompt in pieces of `piece` tokens, then `steps` single tokens.

        Each step feeds the arg max of the row before it, or `continuation` [steps] when given.
        """
        cache = self.empty_cache()
        parts = [prompt[start : start + piece] for start in range(0, len(prompt), piece)]
        rows = [self.forward(part, cache) for part in parts]
        states = self._states(cache)
        chosen = []
        for step in range(steps):
            token = int(rows[-1][-1].argmax()) if continuation is None else continuation[step]
            chosen.append(token)
            rows.append(self.forward(np.array([token], dtype=np.int64), cache))
        ids = np.concatenate([prompt, np.array(chosen, dtype=np.int64)])
        return Run(ids=ids, logits=np.concatenate(rows), states=states)

    def _states(self, cache: DynamicCache) -> dict[str, Array]:
        states = {}
        for index, kind in enumerate(self.config.layer_types):
            if kind == "full_attention":
                layer = cache.layers[index]
                found = {"keys": layer.keys[0], "values": layer.values[0]}
            else:
                # transformers keeps one column more than the convolution reads: the oldest.
                conv = cache.get_conv_state(index, state_idx=0)[0]
                kernel = self.config.linear_conv_kernel_dim
                recurrent = cache.get_recurrent_state(index, state_idx=0)[0]
                found = {"conv": conv[:, conv.shape[1] - (kernel - 1) :], "recurrent": recurrent}
            for field, value in found.items():
                if value.dtype != self._dtype:
                    raise ValueError(f"layer {index} {field} is {value.dtype}, not {self._dtype}")
                states[f"L{index}.{field}"] = value.double().numpy().copy()
        return states
