"""Write the trained model in the Hugging Face layout and prove that transformers reads it back."""

import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3_5ForCausalLM

from tools.tiny_model import architecture, byte_bpe

FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
# The public checkpoints keep these two in float32 and everything else in bfloat16.
FLOAT32_SUFFIXES = ("linear_attn.A_log", "linear_attn.norm.weight")


def file_dtype(name: str) -> torch.dtype:
    """The dtype in which a parameter is stored."""
    return torch.float32 if name.endswith(FLOAT32_SUFFIXES) else torch.bfloat16


def round_to_file_precision(model: Qwen3_5ForCausalLM) -> None:
    """Round every weight in place to what the file holds: tests then see the shipped model."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weight.to(file_dtype(name)))


def write_folder(folder: Path, model: Qwen3_5ForCausalLM, tokenizer: Tokenizer) -> None:
    """config.json, generation_config.json, model.safetensors and the tokenizer's two files."""
    config = {"architectures": ["Qwen3_5ForCausalLM"], **architecture.TEXT_CONFIG}
    _write_json(folder / "config.json", config)
    _write_json(
        folder / "generation_config.json",
        {"do_sample": True, "eos_token_id": architecture.END_OF_TEXT, "temperature": 0.7},
    )
    _write_json(
        folder / "tokenizer_config.json",
        {
            "eos_token": byte_bpe.END_OF_TEXT,
            "model_max_length": architecture.CONTEXT,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )
    byte_bpe.save(tokenizer, folder)
    tensors = {
        name: weight.detach().to(file_dtype(name)).contiguous()
        for name, weight in model.named_parameters()  # a tied lm_head is listed once
    }
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})


def check_folder(folder: Path, model: Qwen3_5ForCausalLM) -> None:
    """Raise unless transformers loads every name strictly and gives the same logits in float32."""
    loaded, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    if any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise ValueError(f"names do not match: {report}")
    text = "The value of an expression is an object."
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt").input_ids
    with torch.no_grad():
        difference = (loaded(ids).logits - model(ids).logits).abs().max().item()
    if difference != 0.0:
        raise ValueError(f"reloaded logits differ by {difference}")


def write_provenance(folder: Path, record: dict[str, object]) -> None:
    """provenance.json: the run's record, the versions and the SHA-256 of each file."""
    packages = ("numpy", "safetensors", "tokenizers", "torch", "transformers")
    versions = {package: version(package) for package in packages}
    versions["python"] = platform.python_version()
    digests = {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in FILES}
    _write_json(folder / "provenance.json", {**record, "sha256": digests, "versions": versions})


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
