"""The shape of the shipped model and its first weights."""

import math

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

VOCABULARY = 1024
CONTEXT = 1024
END_OF_TEXT = 0  # token id; the tokenizer puts its only special token first

# Every head count and the intermediate size divide by 4 (TP 1, 2 and 4); value heads = 2 x key
# heads; key and value head dimensions differ so that a transposed state cannot pass a shape check.
TEXT_CONFIG: dict[str, object] = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_output_gate": True,
    "dtype": "bfloat16",
    "eos_token_id": END_OF_TEXT,
    "full_attention_interval": 4,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 192,
    "initializer_range": 0.02,
    "intermediate_size": 512,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_value_head_dim": 24,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": CONTEXT,
    "model_type": "qwen3_5_text",
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [2, 1, 1],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000.0,
        "rope_type": "default",
    },
    "tie_word_embeddings": True,
    "use_cache": True,
    "vocab_size": VOCABULARY,
}


def build(generator: torch.Generator) -> Qwen3_5ForCausalLM:
    """A float32 model with fresh weights drawn from `generator`."""
    config = Qwen3_5TextConfig(**{**TEXT_CONFIG, "dtype": "float32"})
    model = Qwen3_5ForCausalLM(config).to(torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            _initialise(name, weight, generator)
    return model


def _initialise(name: str, weight: torch.Tensor, generator: torch.Generator) -> None:
    """In place.  Decays as in Mamba-2: exp(A_log) in [1, 16], softplus(dt_bias) in [1e-3, 0.1]."""
    if name.endswith("A_log"):
        weight.uniform_(1.0, 16.0, generator=generator).log_()
    elif name.endswith("dt_bias"):
        weight.uniform_(math.log(1e-3), math.log(1e-1), generator=generator).exp_()
        weight.add_(torch.log(-torch.expm1(-weight)))  # inverse of softplus
    elif name.endswith("conv1d.weight"):
        weight.normal_(0.0, 0.3, generator=generator)
    elif weight.ndim == 1:
        weight.fill_(1.0 if name.endswith("linear_attn.norm.weight") else 0.0)
    elif name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
        weight.zero_()  # each sublayer starts as the identity
    elif name.endswith("embed_tokens.weight"):
        weight.normal_(0.0, 0.02, generator=generator)
    else:
        weight.normal_(0.0, weight.shape[1] ** -0.5, generator=generator)
