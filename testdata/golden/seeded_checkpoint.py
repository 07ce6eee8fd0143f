"""Checkpoint folders whose every weight follows from a seed: NumPy and json only.

A value depends on (seed, tensor name, element index) alone.  Only integer arithmetic and single
IEEE operations (+, *, correctly rounded sqrt) are used, no library generator and no log or cos, so
any machine and any NumPy write the same bytes; manifest.json records their SHA-256.
"""

import hashlib
import json
import math
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testdata.golden.shapes import SHAPES, Shape, config
from testdata.golden.tensor_shapes import full_name, skipped_tensors, text_tensors

Float32 = npt.NDArray[np.float32]
FLOAT32_IN_PUBLIC = (".linear_attn.A_log", ".linear_attn.norm.weight")
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def splitmix64(start: int, count: int) -> npt.NDArray[np.uint64]:
    """The first `count` outputs of splitmix64 (Steele, Lea, Flood 2014) from state `start`."""
    z = np.uint64(start) + np.arange(1, count + 1, dtype=np.uint64) * _GAMMA
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def words(seed: int, name: str, count: int) -> npt.NDArray[np.uint64]:
    """`count` 64-bit words that depend on the seed and the name alone."""
    key = hashlib.sha256(f"{seed}:{name}".encode("ascii")).digest()[:8]
    return splitmix64(int.from_bytes(key, "little"), count)


def uniform(seed: int, name: str, shape: tuple[int, ...], low: float, high: float) -> Float32:
    """Uniform float32 in [low, high]: the top 53 bits of each word."""
    unit = (words(seed, name, math.prod(shape)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    values: Float32 = (low + (high - low) * unit).astype(np.float32)
    return values.reshape(shape)


def bell(seed: int, name: str, shape: tuple[int, ...], deviation: float) -> Float32:
    """Bell-shaped float32, mean 0: the sum of the four 16-bit lanes of each word (Irwin-Hall)."""
    lanes = words(seed, name, math.prod(shape)).view(np.uint16).reshape(-1, 4)
    centred = lanes.sum(axis=1, dtype=np.int64) - 2 * 65535
    scale = deviation / math.sqrt((2.0**32 - 1.0) / 3.0)
    values: Float32 = (centred.astype(np.float64) * scale).astype(np.float32)
    return values.reshape(shape)


def tokens(seed: int, name: str, count: int, vocab: int) -> npt.NDArray[np.int64]:
    """Token ids [count], each in [0, vocab)."""
    return (words(seed, name, count) % np.uint64(vocab)).astype(np.int64)


def tensor(shape: Shape, seed: int, name: str, size: tuple[int, ...]) -> Float32:
    """One weight, before any rounding to bfloat16.

    Scales make every path matter: logits near 2.5 in deviation, decays from almost none (even
    value heads) to almost total (odd ones).  Norm weights used as 1 + w are centred on 0.
    """
    if name.endswith("A_log"):
        mixed = uniform(seed, name, size, -4.6, 0.0)
        mixed[1::2] = uniform(seed, name + "!", size, 0.0, 2.77)[1::2]
        return mixed
    if name.endswith("dt_bias"):
        return uniform(seed, name, size, -6.0, 1.0)
    if name.endswith("conv1d.weight"):
        return bell(seed, name, size, shape.conv_scale)
    if name.endswith("linear_attn.norm.weight"):
        return np.float32(1.0) + bell(seed, name, size, 0.3)
    if len(size) == 1:
        return bell(seed, name, size, 0.3)
    if name in ("embed_tokens.weight", "lm_head.weight"):
        return bell(seed, name, size, 2.5 / math.sqrt(size[1]))
    return bell(seed, name, size, 1.0 / math.sqrt(math.prod(size[1:])))


def bfloat16_bits(values: Float32) -> npt.NDArray[np.uint16]:
    """The bit patterns of finite float32 `values` rounded to bfloat16, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def stored_dtype(shape: Shape, name: str) -> str:
    """The safetensors dtype of a tensor: "F32" or "BF16"."""
    if shape.dtype == "float32":
        return "F32"
    if shape.dtype != "bfloat16":
        raise ValueError(f"dtype {shape.dtype!r}: expected 'float32' or 'bfloat16'")
    return "F32" if shape.layout == "public" and name.endswith(FLOAT32_IN_PUBLIC) else "BF16"


def checkpoint_tensors(shape: Shape, seed: int) -> dict[str, Float32]:
    """Every tensor of the shape's layout under its name in the file, as float32."""
    named = {
        full_name(name, shape.layout): tensor(shape, seed, name, size)
        for name, size in text_tensors(shape).items()
    }
    if shape.layout == "public":
        extra = skipped_tensors(shape)
        named |= {name: tensor(shape, seed, name, size) for name, size in extra.items()}
    return named


def write_checkpoint(folder: Path, shape: Shape, seed: int) -> dict[str, str]:
    """Write config.json and the weight files into `folder` (created, must hold no files yet).

    Tensors go round the shards in turn, so that no layer lies in one file.  Returns file name ->
    SHA-256.  Use `dataclasses.replace(SHAPES[name], layout=..., dtype=..., shards=...)` for
    another way of storing the same weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty")
    named = checkpoint_tensors(shape, seed)
    files = {"config.json": _json_bytes(config(shape))}
    indexed = shape.layout == "public" or shape.shards > 1
    placed: dict[str, str] = {}
    total = 0
    for shard in range(shape.shards):
        file = _shard_name(shape, shard) if indexed else "model.safetensors"
        names = list(named)[shard :: shape.shards]
        files[file], size = _safetensors(
            {name: (stored_dtype(shape, name), named[name]) for name in names}
        )
        placed |= dict.fromkeys(names, file)
        total += size
    if indexed:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(placed.items()))}
        files["model.safetensors.index.json"] = _json_bytes(index)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return {file: hashlib.sha256(content).hexdigest() for file, content in sorted(files.items())}


def shape_seed(name: str) -> int:
    """The seed of a golden shape, out of its name: shapes may be added without moving others."""
    if name not in SHAPES:
        raise ValueError(f"shape {name!r}: expected one of {sorted(SHAPES)}")
    return int.from_bytes(hashlib.sha256(name.encode("ascii")).digest()[:4], "little")


def _shard_name(shape: Shape, shard: int) -> str:
    stem = "model.safetensors" if shape.layout == "public" else "model"
    return f"{stem}-{shard + 1:05d}-of-{shape.shards:05d}.safetensors"


def _json_bytes(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode("ascii")


def _safetensors(tensors: dict[str, tuple[str, Float32]]) -> tuple[bytes, int]:
    """The bytes of a file (u64 header length, JSON header, data) and the number of data bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name in sorted(tensors):
        dtype, values = tensors[name]
        stored = bfloat16_bits(values) if dtype == "BF16" else values
        part = stored.astype(stored.dtype.newbyteorder("<"), copy=False).tobytes()
        offsets = [len(data), len(data) + len(part)]
        header[name] = {"data_offsets": offsets, "dtype": dtype, "shape": list(values.shape)}
        data += part
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode("ascii")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data, len(data)
