"""The golden file of the shipped trained model: English prompts and what it goes on to write."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

from testdata.golden.golden_loader import FOLDER, file_sha256
from tools.golden.forward import Reference
from tools.golden.golden_file import one_sequence, write_file

CHECKPOINT = FOLDER.parent / "tiny-qwen35"
FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
PROMPTS = (
    "The",
    "Return the",
    "This method is called when",
    "This module provides a simple way to read and write files. Each file",
)
STEPS = 24


def entry(checkpoint: Path = CHECKPOINT) -> dict[str, object]:
    """Compute and write trained/tiny-qwen35.npz; returns the manifest's `trained`."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    wide, narrow = Reference(checkpoint, torch.float64), Reference(checkpoint, torch.float32)
    arrays: dict[str, Any] = {}
    lengths, continuations = [], []
    for index, text in enumerate(PROMPTS):
        prompt = np.array(tokenizer(text).input_ids, dtype=np.int64)
        positions = np.arange(len(prompt) - 1, len(prompt) + STEPS)
        found, _ = one_sequence(wide, narrow, prompt, positions, len(prompt))
        arrays |= {f"s{index:02d}.{field}": value for field, value in found.items()}
        lengths.append(len(prompt))
        continuations.append(tokenizer.decode(found["ids"][len(prompt) :]))
    return {
        "checkpoint_sha256": {file: file_sha256(checkpoint / file) for file in FILES},
        "continuations": continuations,
        "golden": write_file("trained/tiny-qwen35.npz", arrays, lengths, STEPS),
        "prompts": list(PROMPTS),
    }
