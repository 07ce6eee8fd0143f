"""A checkpoint with few layers and random weights, written to disk once.

Its widths are those of the 4B model, or a half or a quarter of them; head sizes stay.
"""

from __future__ import annotations

import json
import struct
from enum import Enum
from pathlib import Path
from typing import Final

import numpy as np

from program.qwen35 import Variant, qwen35_program
from program.qwen35_config import read_config

VOCABULARY: Final = 1024
WEIGHTS: Final = "model.safetensors"
_CHUNK_ELEMENTS: Final = 1 << 22
_SCALE: Final = 0.02


class Size(Enum):
    """The value divides the widths of the 4B model."""

    FULL = 1
    HALF = 2
    QUARTER = 4


CONFIG: Final[dict[str, object]] = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "attention_bias": False,
    "attn_output_gate": True,
    "dtype": "float32",
    "eos_token_id": 0,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 9216,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 8192,
    "num_attention_heads": 16,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
    },
    "tie_word_embeddings": True,
    "vocab_size": VOCABULARY,
}


# What a smaller size divides, each with its least value: the program runs on two ranks.
_DIVIDED: Final = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def config(size: Size) -> dict[str, object]:
    """What config.json holds."""
    divided = {name: max(least, _width(name) // size.value) for name, least in _DIVIDED.items()}
    return CONFIG | divided


def _width(name: str) -> int:
    return int(str(CONFIG[name]))


def write_checkpoint(folder: Path, size: Size = Size.FULL) -> None:
    """config.json and model.safetensors, float32; 1.8 GB at full size, a sixteenth at a quarter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(size)))
    weights = qwen35_program(read_config(folder), Variant.SHARDED, 1).weights
    header: dict[str, object] = {}
    offset = 0
    for weight in weights:
        weight_bytes = 4 * int(np.prod(weight.shape))
        name = f"model.{weight.name}"
        header[name] = {
            "dtype": "F32",
            "shape": list(weight.shape),
            "data_offsets": [offset, offset + weight_bytes],
        }
        offset += weight_bytes
    text = json.dumps(header).encode("ascii")
    text += b" " * (-len(text) % 8)
    source = np.random.default_rng(0)
    with (folder / WEIGHTS).open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for weight in weights:
            left = int(np.prod(weight.shape))
            while left:
                count = min(left, _CHUNK_ELEMENTS)
                values = source.standard_normal(count, np.float32) * np.float32(_SCALE)
                file.write(values.astype("<f4").data)
                left -= count
