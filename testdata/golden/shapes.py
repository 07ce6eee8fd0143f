"""The tiny Qwen3.5 shapes that have golden logits: dimensions, config.json and tensor shapes.

Each shape exists to make one class of mistake visible; `Shape.purpose` says which.  A layer
pattern is a string of L (linear attention) and F (full attention), first layer first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

TP_DEGREES = (1, 2, 4)
VISION_DIMENSION, VISION_FEED_FORWARD, VISION_MERGED = 16, 24, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Dimensions of a text model and the way its golden checkpoint is stored.

    `layout` "public" is what the published multimodal repositories hold (`config.json` nests
    `text_config`; names under `model.language_model.`; vision and MTP tensors beside them);
    "text" is a text-only save (flat config, names under `model.`).  `dtype` "float32" or
    "bfloat16"; public bfloat16 files keep `linear_attn.A_log` and `linear_attn.norm.weight`
    in float32, text-only ones do not.
    """

    purpose: str
    pattern: str = "LLLF"
    vocab: int = 96
    hidden: int = 64
    intermediate: int = 96
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 16
    key_heads: int = 4
    value_heads: int = 8
    key_dim: int = 16
    value_dim: int = 12
    kernel: int = 4
    rope_fraction: float = 0.25
    rope_theta: float = 10000000.0
    rms_eps: float = 1e-6
    conv_scale: float = 0.5
    tied: bool = True
    layout: str = "public"
    dtype: str = "float32"
    shards: int = 2

    def tp_degrees(self, program: str) -> list[int]:
        """The degrees that divide every sharded dimension of `replicated` or `sharded`."""
        sizes = [self.heads, self.kv_heads, self.intermediate]
        if program == "sharded":
            sizes += [self.key_heads, self.value_heads]
        elif program != "replicated":
            raise ValueError(f"program {program!r}: expected 'replicated' or 'sharded'")
        return [degree for degree in TP_DEGREES if all(size % degree == 0 for size in sizes)]


BASE = Shape(purpose="the 3:1 pattern, Hv = 2 Hk, grouped queries, tied")
SHAPES: Mapping[str, Shape] = {
    "base": BASE,
    "deep": replace(
        BASE, purpose="eight layers, untied head", pattern="LLLFLLLF", tied=False, vocab=128
    ),
    "value_1x": replace(
        BASE, purpose="Hv = Hk; one query head per KV head", value_heads=4, heads=4
    ),
    "value_3x": replace(
        BASE, purpose="Hv = 3 Hk; three query heads per KV head", value_heads=12, heads=12
    ),
    "conv2": replace(BASE, purpose="convolution kernel 2", kernel=2, vocab=97),
    "conv3": replace(
        BASE,
        purpose="convolution kernel 3, alternating layers",
        kernel=3,
        pattern="LFLF",
        tied=False,
    ),
    "key_lt_value": replace(
        BASE, purpose="key head narrower than value head", key_dim=8, value_dim=24
    ),
    "key_eq_value": replace(BASE, purpose="equal key and value dims, as published", value_dim=16),
    "rope_half": replace(
        BASE, purpose="half of each head turns", rope_fraction=0.5, rope_theta=1e4
    ),
    "rope_full": replace(BASE, purpose="the whole head turns", rope_fraction=1.0, rope_theta=1e3),
    "mqa": replace(BASE, purpose="one KV head for all queries: TP 1 only", kv_heads=1),
    "full_first": replace(BASE, purpose="starts with full attention", pattern="FLLF"),
    "eps_rms": replace(
        BASE, purpose="rms_norm_eps 1e-2 apart from the l2norm constant", rms_eps=1e-2
    ),
    "eps_l2": replace(BASE, purpose="q, k so small that the l2norm eps decides", conv_scale=2e-3),
    "wide_head": replace(
        BASE,
        purpose="wider heads; hidden_size is no power of two",
        hidden=48,
        head_dim=32,
        vocab=101,
    ),
    "odd_linear": replace(
        BASE, purpose="3 key heads: linear layers shard at TP 1 only", key_heads=3, value_heads=6
    ),
    "tp4": replace(
        BASE,
        purpose="two KV and two key heads per rank at TP 4: wrong pairings show on a rank",
        pattern="LLLFLF",
        heads=16,
        kv_heads=8,
        head_dim=8,
        key_heads=8,
        value_heads=16,
        key_dim=8,
        intermediate=128,
        rope_fraction=0.5,
        vocab=128,
    ),
    "bf16_public": replace(
        BASE,
        purpose="bfloat16 file with two float32 tensors per layer",
        dtype="bfloat16",
        tied=False,
        shards=3,
    ),
    "bf16_text": replace(
        BASE,
        purpose="text-only file, all bfloat16, no index",
        dtype="bfloat16",
        layout="text",
        shards=1,
    ),
}


def mrope_section(shape: Shape) -> list[int]:
    """Rotary frequencies for time, height and width; they share the frequencies evenly."""
    frequencies = int(shape.head_dim * shape.rope_fraction) // 2
    return [(frequencies + 2) // 3, (frequencies + 1) // 3, frequencies // 3]


def text_config(shape: Shape) -> dict[str, object]:
    """The text part of config.json."""
    names = {"L": "linear_attention", "F": "full_attention"}
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "dtype": shape.dtype,
        "eos_token_id": 0,
        "full_attention_interval": 4,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate,
        "layer_types": [names[letter] for letter in shape.pattern],
        "linear_conv_kernel_dim": shape.kernel,
        "linear_key_head_dim": shape.key_dim,
        "linear_num_key_heads": shape.key_heads,
        "linear_num_value_heads": shape.value_heads,
        "linear_value_head_dim": shape.value_dim,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 16384,
        "mlp_only_layers": [],
        "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": len(shape.pattern),
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.rms_eps,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": mrope_section(shape),
            "partial_rotary_factor": shape.rope_fraction,
            "rope_theta": shape.rope_theta,
            "rope_type": "default",
        },
        "tie_word_embeddings": shape.tied,
        "use_cache": True,
        "vocab_size": shape.vocab,
    }


def config(shape: Shape) -> dict[str, object]:
    """config.json of the shape's layout."""
    if shape.layout == "text":
        return {"architectures": ["Qwen3_5ForCausalLM"], **text_config(shape)}
    vision = {
        "deepstack_visual_indexes": [],
        "depth": 1,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": VISION_DIMENSION,
        "in_channels": 3,
        "initializer_range": 0.02,
        "intermediate_size": VISION_FEED_FORWARD,
        "model_type": "qwen3_5",
        "num_heads": 2,
        "num_position_embeddings": 16,
        "out_hidden_size": shape.hidden,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "image_token_id": 248056,
        "model_type": "qwen3_5",
        "text_config": text_config(shape),
        "tie_word_embeddings": shape.tied,
        "transformers_version": "4.57.0.dev0",
        "video_token_id": 248057,
        "vision_config": vision,
        "vision_end_token_id": 248054,
        "vision_start_token_id": 248053,
    }
