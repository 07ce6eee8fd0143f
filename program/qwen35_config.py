"""Strict reader of a Qwen3.5 checkpoint's config.json, in both published namings.

The multimodal wrapper nests the text part under `text_config`; a text-only save has the same keys
at the top. Every key is either read, or known to be inert for text inference and listed here, or
refused: a key this file does not know may change what the model computes. The rules are those of
docs/spec/checkpoint.md (clauses K).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from errors import ConfigError, ConfigProblem
from program.qwen35 import LayerType, OutputGate, Qwen35Config
from program.strict_json import JsonObject, parse_object, shown

CONFIG_FILE: Final = "config.json"
# The largest published config.json has 4,134 bytes; 1 MiB is the largest that could still be one.
CONFIG_BYTES_MAX: Final = 1 << 20
# No dimension of a model reaches 2^31; products of two stay within what Python and files hold.
_DIMENSION_MAX: Final = (1 << 31) - 1
_LAYERS_MAX: Final = 4096

_WRAPPER_TYPE: Final = "qwen3_5"
_TEXT_TYPE: Final = "qwen3_5_text"
_ARCHITECTURES: Final = {
    _WRAPPER_TYPE: ("Qwen3_5ForConditionalGeneration",),
    _TEXT_TYPE: ("Qwen3_5ForCausalLM", "Qwen3_5TextModel"),
}
_GATES: Final = {
    "swish": OutputGate.SILU,
    "silu": OutputGate.SILU,
    "sigmoid": OutputGate.SIGMOID,
}
# Keys that do not change text inference: training, bookkeeping, other modalities, the MTP head.
_INERT: Final = frozenset(
    {
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "bos_token_id",
        "chunk_size_feed_forward",
        "dtype",
        "full_attention_interval",
        "id2label",
        "initializer_range",
        "is_encoder_decoder",
        "label2id",
        "mtp_num_hidden_layers",
        "mtp_use_dedicated_embeddings",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "problem_type",
        "return_dict",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
_WRAPPER_INERT: Final = _INERT | {
    "image_token_id",
    "language_model_only",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
}
_WRAPPER_READ: Final = frozenset({"model_type", "text_config", "tie_word_embeddings"})
_TEXT_READ: Final = frozenset(
    {
        "attention_bias",
        "attn_output_gate",
        "eos_token_id",
        "head_dim",
        "hidden_act",
        "hidden_size",
        "intermediate_size",
        "layer_types",
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_value_head_dim",
        "mamba_ssm_dtype",
        "max_position_embeddings",
        "mlp_only_layers",
        "model_type",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "output_gate_type",
        "partial_rotary_factor",
        "rms_norm_eps",
        "rope_parameters",
        "tie_word_embeddings",
        "vocab_size",
    }
)
_ROPE_READ: Final = frozenset(
    {"mrope_interleaved", "mrope_section", "partial_rotary_factor", "rope_theta", "rope_type"}
)


def read_config(folder: Path) -> Qwen35Config:
    """The configuration in `folder`/config.json.

    Raises ConfigError: checkpoint.unreadable, or as `parse_config` does.
    """
    path = folder / CONFIG_FILE
    try:
        if path.exists() and not path.is_file():  # a pipe would keep whoever opens it waiting
            raise ConfigError.single("checkpoint", path, "must be a file", "checkpoint.unreadable")
        with path.open("rb") as stream:
            data = stream.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError.single(
            "checkpoint", path, f"must be readable: {error.strerror}", "checkpoint.unreadable"
        ) from error
    return parse_config(data)


def parse_config(data: bytes) -> Qwen35Config:
    """The configuration that the bytes of a config.json hold.

    Raises ConfigError with every problem found: the path of the field, its value, the rule.
    """
    top = parse_object(data, CONFIG_FILE, bytes_max=CONFIG_BYTES_MAX, code="config.invalid")
    fields = _Fields(top, "")
    problems = fields.problems
    model_type = fields.choice("model_type", (_WRAPPER_TYPE, _TEXT_TYPE))
    fields.architectures(model_type)
    text = fields
    if model_type == _WRAPPER_TYPE:
        fields.only(_WRAPPER_READ | _WRAPPER_INERT)
        text = _Fields(fields.object("text_config"), "text_config.", problems)
        text.choice("model_type", (_TEXT_TYPE,))
    text.only(_TEXT_READ | _INERT)
    config = None if problems else _text(text, top)
    if config is None or problems:
        raise ConfigError(problems)
    return config


def _text(text: _Fields, top: JsonObject) -> Qwen35Config | None:
    """The text part; None when a problem was recorded that leaves no value to go on with."""
    text.must_be("attention_bias", False, required=True)
    text.must_be("attn_output_gate", True)  # the architecture knows no other; saves may omit it
    text.must_be("hidden_act", "silu", required=True)
    text.must_be("mlp_only_layers", [])
    text.must_be("mamba_ssm_dtype", "float32")
    head_dim = text.count("head_dim")
    rotary_dim, theta = text.rope(head_dim)
    tied = text.flag("tie_word_embeddings", top.get("tie_word_embeddings", False))
    config = Qwen35Config(
        vocab_size=text.count("vocab_size"),
        hidden_size=text.count("hidden_size"),
        intermediate_size=text.count("intermediate_size"),
        layer_types=text.layer_types(),
        num_attention_heads=text.count("num_attention_heads"),
        num_key_value_heads=text.count("num_key_value_heads"),
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        rope_theta=theta,
        linear_num_key_heads=text.count("linear_num_key_heads"),
        linear_num_value_heads=text.count("linear_num_value_heads"),
        linear_key_head_dim=text.count("linear_key_head_dim"),
        linear_value_head_dim=text.count("linear_value_head_dim"),
        linear_conv_kernel_dim=text.count("linear_conv_kernel_dim", minimum=2),
        rms_norm_eps=text.positive("rms_norm_eps"),
        max_position_embeddings=text.count("max_position_embeddings"),
        tie_word_embeddings=tied,
        output_gate=_GATES[text.choice("output_gate_type", tuple(_GATES), absent="silu")],
        eos_token_ids=text.token_ids("eos_token_id"),
    )
    if text.problems:
        return None
    text.multiple("num_attention_heads", "num_key_value_heads")
    text.multiple("linear_num_value_heads", "linear_num_key_heads")
    for token in config.eos_token_ids:
        if token >= config.vocab_size:
            text.refuse("eos_token_id", token, f"must be below vocab_size {config.vocab_size}")
    return config


class _Fields:
    """One JSON object with the path its fields have in messages; problems are collected."""

    def __init__(
        self, values: JsonObject, path: str, problems: list[ConfigProblem] | None = None
    ) -> None:
        self._values = values
        self._path = path
        self.problems: list[ConfigProblem] = [] if problems is None else problems

    def refuse(self, name: str, value: object, rule: str) -> None:
        self.problems.append(ConfigProblem(self._path + name, shown(value), rule))

    def only(self, known: frozenset[str]) -> None:
        """Every key that is not known is refused."""
        for name, value in self._values.items():
            if name not in known:
                self.refuse(name, value, "is not an option this engine supports")

    def _given(self, name: str) -> object:
        """The value, or None after recording that it is missing (null counts as missing)."""
        value = self._values.get(name)
        if value is None:
            self.refuse(name, "null" if name in self._values else "missing", "must be given")
        return value

    def count(self, name: str, minimum: int = 1) -> int:
        value = self._given(name)
        if value is None:
            return minimum
        if type(value) is not int or not minimum <= value <= _DIMENSION_MAX:
            self.refuse(name, value, f"must be an integer from {minimum} to {_DIMENSION_MAX}")
            return minimum
        return value

    def positive(self, name: str) -> float:
        value = self._given(name)
        if value is None:
            return 1.0
        if type(value) not in (int, float) or not isinstance(value, (int, float)) or value <= 0:
            self.refuse(name, value, "must be a number above 0")
            return 1.0
        return float(value)

    def flag(self, name: str, absent: object) -> bool:
        value = self._values.get(name, absent)
        if type(value) is not bool:
            self.refuse(name, value, "must be true or false")
            return False
        return value

    def choice(self, name: str, allowed: tuple[str, ...], absent: str | None = None) -> str:
        value = self._values.get(name, absent)
        if not isinstance(value, str) or value not in allowed:
            given = value if name in self._values else "missing"
            self.refuse(name, given, f"must be one of {', '.join(allowed)}")
            return allowed[0]
        return value

    def must_be(self, name: str, only: object, *, required: bool = False) -> None:
        """The one value of this option that the engine computes."""
        if name not in self._values and not required:
            return
        value = self._values.get(name)
        if type(value) is not type(only) or value != only:
            given = value if name in self._values else "missing"
            self.refuse(name, given, f"must be {shown(only)}")

    def object(self, name: str) -> JsonObject:
        value = self._given(name)
        if isinstance(value, dict):
            return value
        if value is not None:
            self.refuse(name, value, "must be an object")
        return {}

    def architectures(self, model_type: str) -> None:
        value = self._values.get("architectures")
        allowed = _ARCHITECTURES[model_type]
        if value is not None and (
            not isinstance(value, list) or any(a not in allowed for a in value)
        ):
            self.refuse("architectures", value, f"must be [{' or '.join(allowed)}]")

    def layer_types(self) -> tuple[LayerType, ...]:
        layers = self.count("num_hidden_layers")
        if layers > _LAYERS_MAX:
            self.refuse("num_hidden_layers", layers, f"must be at most {_LAYERS_MAX}")
            return ()
        value = self._given("layer_types")
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) != layers:
            rule = f"must be a list of num_hidden_layers = {layers} layer types"
            self.refuse("layer_types", value, rule)
            return ()
        kinds = {kind.value: kind for kind in LayerType}
        for index, name in enumerate(value):
            if not isinstance(name, str) or name not in kinds:
                self.refuse(f"layer_types[{index}]", name, f"must be one of {', '.join(kinds)}")
        return tuple(kinds[name] for name in value) if not self.problems else ()

    def rope(self, head_dim: int) -> tuple[int, float]:
        """(rotary_dim, theta) of rope_parameters; the fraction may stand beside it instead."""
        given = self.object("rope_parameters")
        rope = _Fields(given, self._path + "rope_parameters.", self.problems)
        if not given:
            return 2, 1.0
        rope.only(_ROPE_READ)
        rope.must_be("rope_type", "default", required=True)
        theta = rope.positive("rope_theta")
        outer = self._values.get("partial_rotary_factor")
        if "partial_rotary_factor" not in given and outer is not None:
            rope = self
        elif outer is not None and outer != given.get("partial_rotary_factor"):
            self.refuse("partial_rotary_factor", outer, "must equal the one in rope_parameters")
        fraction = rope.positive("partial_rotary_factor")
        rotary_dim = math.floor(head_dim * fraction) if fraction <= 1 else 0
        if rotary_dim < 2 or rotary_dim % 2:
            rule = f"must turn an even number of channels of head_dim = {head_dim}, at least 2"
            rope.refuse("partial_rotary_factor", fraction, rule)
        return rotary_dim, theta

    def token_ids(self, name: str) -> tuple[int, ...]:
        """One token id, a list of them, or none (absent or null)."""
        value = self._values.get(name)
        if value is None:
            return ()
        tokens = value if isinstance(value, list) else [value]
        if any(type(token) is not int or token < 0 for token in tokens):
            self.refuse(name, value, "must be a token id or a list of token ids")
            return ()
        return tuple(tokens)

    def multiple(self, name: str, of: str) -> None:
        value, divisor = self.count(name), self.count(of)
        if value % divisor:
            self.refuse(name, value, f"must be a multiple of {of} = {divisor}")
