"""The shipped model: small, strictly named, shardable by 4, and the one its record describes."""

import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from pydoc_data import topics
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from testdata.golden import golden_loader
from testdata.golden.shapes import Shape
from testdata.golden.tensor_shapes import full_name, text_tensors

FOLDER = golden_loader.FOLDER.parent / "tiny-qwen35"
MAX_BYTES = 6_000_000
LETTERS = {"linear_attention": "L", "full_attention": "F"}


def document(name: str) -> dict[str, Any]:
    value = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    assert isinstance(value, dict)
    return value


def header_and_data(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__")
    return header, content[8 + length :]


def shape() -> Shape:
    config = document("config.json")
    return Shape(
        purpose="shipped",
        pattern="".join(LETTERS[kind] for kind in config["layer_types"]),
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        key_heads=config["linear_num_key_heads"],
        value_heads=config["linear_num_value_heads"],
        key_dim=config["linear_key_head_dim"],
        value_dim=config["linear_value_head_dim"],
        kernel=config["linear_conv_kernel_dim"],
        tied=config["tie_word_embeddings"],
        layout="text",
        dtype=config["dtype"],
    )


def test_the_whole_folder_is_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MAX_BYTES


def test_record_and_manifest_name_the_files_that_are_here() -> None:
    recorded = document("provenance.json")["sha256"]
    assert recorded == golden_loader.load_manifest().trained.checkpoint_sha256
    for file, digest in recorded.items():
        assert golden_loader.file_sha256(FOLDER / file) == digest, file
    listed = {*recorded, "BUILD.bazel", "README.md", "provenance.json"}
    assert {path.name for path in FOLDER.iterdir()} <= listed


def test_names_shapes_and_dtypes() -> None:
    header, data = header_and_data(FOLDER / "model.safetensors")
    expected = {full_name(name, "text"): size for name, size in text_tensors(shape()).items()}
    assert {name: tuple(entry["shape"]) for name, entry in header.items()} == expected
    wide = {name for name, entry in header.items() if entry["dtype"] == "F32"}
    assert wide == {n for n in expected if n.endswith(("A_log", "linear_attn.norm.weight"))}
    assert {entry["dtype"] for entry in header.values()} == {"BF16", "F32"}
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(data)


def test_every_weight_is_finite() -> None:
    header, data = header_and_data(FOLDER / "model.safetensors")
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(data[first:last], "<u2").astype(np.uint32) << 16
            values = bits.view(np.float32)
        else:
            values = np.frombuffer(data[first:last], "<f4")
        assert np.isfinite(values).all(), name


def test_shape_is_a_hybrid_that_four_ranks_can_share() -> None:
    found = shape()
    assert found.pattern == "LLLF"
    assert found.value_heads == 2 * found.key_heads
    assert found.key_dim != found.value_dim
    for program in ("replicated", "sharded"):
        assert found.tp_degrees(program) == [1, 2, 4]


@pytest.mark.parametrize("text", ["", " ", "Return the value.\n", "na\u00efve \U0001f600\x00\t"])
def test_any_text_survives_the_tokenizer(text: str) -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == shape().vocab
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_golden_prompts_and_continuations_are_those_ids() -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    trained = golden_loader.load_manifest().trained
    sequences = golden_loader.load_trained()
    for sequence, text, more in zip(sequences, trained.prompts, trained.continuations, strict=True):
        assert tokenizer.encode(text).ids == sequence.ids[: sequence.prompt].tolist()
        written = sequence.ids[sequence.prompt :].tolist()
        assert tokenizer.decode(written, skip_special_tokens=False) == more


def reads_as_english(texts: Sequence[str]) -> bool:
    """Whether nearly every whole word is one of Python's reference and few are repeated."""
    reference = " ".join(topics.topics.values())
    known = {word.lower() for word in re.findall("[A-Za-z]+", reference)}
    written = [word.lower() for text in texts for word in re.findall("[A-Za-z]+", text)[1:-1]]
    right = sum(word in known for word in written)
    return len(set(written)) >= 20 and right >= 0.8 * len(written)


def test_it_writes_english() -> None:
    assert reads_as_english(golden_loader.load_manifest().trained.continuations)


@pytest.mark.parametrize("text", [" the" * 60, " qz tue xob ter veq lol wap nim fof jiz" * 6])
def test_loops_and_letter_salad_are_not_english(text: str) -> None:
    assert not reads_as_english([text])


def test_end_of_text_is_one_id() -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    config = document("config.json")
    assert tokenizer.token_to_id("<|endoftext|>") == config["eos_token_id"]
    assert document("generation_config.json")["eos_token_id"] == config["eos_token_id"]
    assert document("tokenizer_config.json")["eos_token"] == "<|endoftext|>"
