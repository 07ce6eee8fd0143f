"""Names and shapes of every tensor of a tiny checkpoint; all weights are [out, in]."""

from testdata.golden.shapes import VISION_DIMENSION, VISION_FEED_FORWARD, VISION_MERGED, Shape

TensorShapes = dict[str, tuple[int, ...]]


def text_tensors(shape: Shape) -> TensorShapes:
    """Names without a prefix, in the order the layers run."""
    tensors: TensorShapes = {"embed_tokens.weight": (shape.vocab, shape.hidden)}
    for index, letter in enumerate(shape.pattern):
        prefix = f"layers.{index}."
        mixer = _full_attention(shape) if letter == "F" else _linear_attention(shape)
        tensors |= {prefix + name: size for name, size in (mixer | _feed_forward(shape)).items()}
    tensors["norm.weight"] = (shape.hidden,)
    if not shape.tied:
        tensors["lm_head.weight"] = (shape.vocab, shape.hidden)
    return tensors


def skipped_tensors(shape: Shape) -> TensorShapes:
    """Full names of the MTP and vision tensors that a text-only loader has to pass over."""
    hidden = shape.hidden
    tensors: TensorShapes = {
        "mtp.fc.weight": (hidden, 2 * hidden),
        "mtp.norm.weight": (hidden,),
        "mtp.pre_fc_norm_embedding.weight": (hidden,),
        "mtp.pre_fc_norm_hidden.weight": (hidden,),
    }
    layer = _full_attention(shape) | _feed_forward(shape)
    tensors |= {"mtp.layers.0." + name: size for name, size in layer.items()}
    return tensors | {"model.visual." + name: size for name, size in _vision(hidden).items()}


def full_name(name: str, layout: str) -> str:
    """The name in the file of a text tensor; `lm_head.weight` never has a prefix."""
    prefixes = {"public": "model.language_model.", "text": "model."}
    if layout not in prefixes:
        raise ValueError(f"layout {layout!r}: expected one of {sorted(prefixes)}")
    return name if name == "lm_head.weight" else prefixes[layout] + name


def _full_attention(shape: Shape) -> TensorShapes:
    hidden, head_dim = shape.hidden, shape.head_dim
    return {
        "self_attn.q_proj.weight": (shape.heads * 2 * head_dim, hidden),
        "self_attn.k_proj.weight": (shape.kv_heads * head_dim, hidden),
        "self_attn.v_proj.weight": (shape.kv_heads * head_dim, hidden),
        "self_attn.o_proj.weight": (hidden, shape.heads * head_dim),
        "self_attn.q_norm.weight": (head_dim,),
        "self_attn.k_norm.weight": (head_dim,),
    }


def _linear_attention(shape: Shape) -> TensorShapes:
    hidden, value_heads = shape.hidden, shape.value_heads
    values = value_heads * shape.value_dim
    channels = 2 * shape.key_heads * shape.key_dim + values
    return {
        "linear_attn.in_proj_qkv.weight": (channels, hidden),
        "linear_attn.in_proj_z.weight": (values, hidden),
        "linear_attn.in_proj_b.weight": (value_heads, hidden),
        "linear_attn.in_proj_a.weight": (value_heads, hidden),
        "linear_attn.conv1d.weight": (channels, 1, shape.kernel),
        "linear_attn.A_log": (value_heads,),
        "linear_attn.dt_bias": (value_heads,),
        "linear_attn.norm.weight": (shape.value_dim,),
        "linear_attn.out_proj.weight": (hidden, values),
    }


def _feed_forward(shape: Shape) -> TensorShapes:
    hidden, intermediate = shape.hidden, shape.intermediate
    return {
        "mlp.gate_proj.weight": (intermediate, hidden),
        "mlp.up_proj.weight": (intermediate, hidden),
        "mlp.down_proj.weight": (hidden, intermediate),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }


def _vision(hidden: int) -> TensorShapes:
    dim, feed_forward, merged = VISION_DIMENSION, VISION_FEED_FORWARD, VISION_MERGED
    linears = {
        "blocks.0.attn.qkv": (3 * dim, dim),
        "blocks.0.attn.proj": (dim, dim),
        "blocks.0.mlp.linear_fc1": (feed_forward, dim),
        "blocks.0.mlp.linear_fc2": (dim, feed_forward),
        "merger.linear_fc1": (merged, merged),
        "merger.linear_fc2": (hidden, merged),
        "patch_embed.proj": (dim, 3, 2, 4, 4),
        "blocks.0.norm1": (dim,),
        "blocks.0.norm2": (dim,),
        "merger.norm": (dim,),
    }
    tensors: TensorShapes = {"pos_embed.weight": (16, dim)}
    for name, size in linears.items():
        tensors[name + ".weight"] = size
        tensors[name + ".bias"] = size[:1]
    return tensors
