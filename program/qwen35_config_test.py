from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from errors import ConfigError
from program import qwen35_config
from program.qwen35 import LayerType, OutputGate, Qwen35Config
from program.qwen35_config import parse_config, read_config
from testdata.golden.shapes import BASE, SHAPES, config

REMOVED = object()
SPEC = Path(__file__).resolve().parent.parent / "docs" / "spec" / "checkpoint.md"


def document(layout: str = "public", **changes: object) -> dict[str, Any]:
    """A valid config.json of `layout` whose text fields are changed (REMOVED: left out)."""
    result: dict[str, Any] = json.loads(json.dumps(config(replace(BASE, layout=layout))))
    text = result["text_config"] if layout == "public" else result
    for name, value in changes.items():
        if value is REMOVED:
            del text[name]
        else:
            text[name] = value
    return result


def parse(value: object) -> Qwen35Config:
    return parse_config(json.dumps(value).encode())


def rope(**changes: object) -> dict[str, Any]:
    values = dict(document()["text_config"]["rope_parameters"], **changes)
    return {name: value for name, value in values.items() if value is not REMOVED}


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_reads_every_golden_shape_in_both_namings(name: str) -> None:
    shape = SHAPES[name]
    public = parse(config(replace(shape, layout="public")))
    assert parse(config(replace(shape, layout="text"))) == public
    assert public == Qwen35Config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        layer_types=tuple(
            LayerType.FULL if letter == "F" else LayerType.LINEAR for letter in shape.pattern
        ),
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rotary_dim=int(shape.head_dim * shape.rope_fraction),
        rope_theta=shape.rope_theta,
        linear_num_key_heads=shape.key_heads,
        linear_num_value_heads=shape.value_heads,
        linear_key_head_dim=shape.key_dim,
        linear_value_head_dim=shape.value_dim,
        linear_conv_kernel_dim=shape.kernel,
        rms_norm_eps=shape.rms_eps,
        max_position_embeddings=16384,
        tie_word_embeddings=shape.tied,
        output_gate=OutputGate.SILU,
        eos_token_ids=(0,),
    )


REFUSED: list[tuple[str, object]] = [
    ("attention_bias", True),
    ("attention_bias", REMOVED),
    ("attn_output_gate", False),
    ("attn_output_gate", None),
    ("hidden_act", "gelu"),
    ("hidden_act", REMOVED),
    ("mamba_ssm_dtype", "bfloat16"),
    ("mlp_only_layers", [1]),
    ("quantization_config", {"quant_method": "awq"}),
    ("num_experts", 8),
    ("sliding_window", 128),
    ("rope_scaling", {"rope_type": "yarn"}),
    ("unheard_of", 1),
    ("output_gate_type", "tanh"),
    ("output_gate_type", None),
    ("tie_word_embeddings", "true"),
    ("tie_word_embeddings", None),
    ("layer_types", ["linear_attention"] * 3 + ["sliding_attention"]),
    ("layer_types", ["linear_attention"] * 3),
    ("layer_types", "linear_attention"),
    ("layer_types", REMOVED),
    ("num_hidden_layers", 1 << 30),
    ("num_hidden_layers", REMOVED),
    ("hidden_size", 0),
    ("hidden_size", -1),
    ("hidden_size", True),
    ("hidden_size", 64.0),
    ("hidden_size", "64"),
    ("hidden_size", 1 << 40),
    ("hidden_size", None),
    ("vocab_size", REMOVED),
    ("linear_conv_kernel_dim", 1),
    ("rms_norm_eps", 0),
    ("rms_norm_eps", -1e-6),
    ("rms_norm_eps", "1e-6"),
    ("rms_norm_eps", True),
    ("num_attention_heads", 6),
    ("linear_num_value_heads", 6),
    ("eos_token_id", 96),
    ("eos_token_id", -1),
    ("eos_token_id", [0, "1"]),
    ("eos_token_id", True),
    ("partial_rotary_factor", 0.5),
    ("rope_parameters", REMOVED),
    ("rope_parameters", []),
    ("rope_parameters", rope(rope_type="yarn")),
    ("rope_parameters", rope(rope_type="linear", factor=2.0)),
    ("rope_parameters", rope(rope_type=REMOVED)),
    ("rope_parameters", rope(factor=2.0)),
    ("rope_parameters", rope(rope_theta=REMOVED)),
    ("rope_parameters", rope(rope_theta=-1.0)),
    ("rope_parameters", rope(partial_rotary_factor=REMOVED)),
    ("rope_parameters", rope(partial_rotary_factor=1.5)),
    ("rope_parameters", rope(partial_rotary_factor=0.2)),
    ("rope_parameters", rope(partial_rotary_factor=0.05)),
    ("model_type", "qwen3_next"),
]


@pytest.mark.parametrize("layout", ["public", "text"])
@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_refuses_with_the_path_of_the_field(layout: str, field: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(document(layout, **{field: value}))
    assert caught.value.code == "config.invalid"
    prefix = "text_config." if layout == "public" else ""
    fields = [problem.field for problem in caught.value.problems]
    assert any(name.startswith(prefix + field) for name in fields), fields


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "qwen3_5_moe"),
        ("model_type", REMOVED),
        ("text_config", REMOVED),
        ("text_config", []),
        ("architectures", ["Qwen3_5ForCausalLM"]),
        ("architectures", "Qwen3_5ForConditionalGeneration"),
        ("quantization_config", {}),
    ],
)
def test_refuses_at_the_top_of_the_wrapper(field: str, value: object) -> None:
    changed = {name: item for name, item in document().items() if name != field}
    with pytest.raises(ConfigError) as caught:
        parse(changed if value is REMOVED else {**changed, field: value})
    assert field in [problem.field for problem in caught.value.problems]


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(document(hidden_act="gelu", hidden_size=0, attention_bias=True))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("inner", "outer", "tied"),
    [
        (True, REMOVED, True),
        (True, False, True),
        (False, True, False),
        (REMOVED, True, True),
        (REMOVED, False, False),
        (REMOVED, REMOVED, False),
    ],
)
def test_the_inner_flag_of_tied_embeddings_wins_and_absence_means_untied(
    inner: object, outer: object, tied: bool
) -> None:
    value = document(tie_word_embeddings=inner)
    del value["tie_word_embeddings"]
    if outer is not REMOVED:
        value["tie_word_embeddings"] = outer
    assert parse(value).tie_word_embeddings is tied


def _moved_fraction(value: dict[str, Any]) -> None:
    del value["rope_parameters"]["partial_rotary_factor"]
    value["partial_rotary_factor"] = 0.25


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        (lambda text: text.update(output_gate_type="sigmoid"), "output_gate", OutputGate.SIGMOID),
        (lambda text: text.update(output_gate_type="swish"), "output_gate", OutputGate.SILU),
        (lambda text: text.update(eos_token_id=[1, 2]), "eos_token_ids", (1, 2)),
        (lambda text: text.update(eos_token_id=None), "eos_token_ids", ()),
        (lambda text: text.pop("eos_token_id"), "eos_token_ids", ()),
        (lambda text: text.pop("mamba_ssm_dtype"), "head_dim", 16),
        (lambda text: text.pop("attn_output_gate"), "head_dim", 16),
        (_moved_fraction, "rotary_dim", 4),
    ],
)
def test_reads_options(
    change: Callable[[dict[str, Any]], None], field: str, expected: object
) -> None:
    value = document("text")
    change(value)
    assert getattr(parse(value), field) == expected


def test_reads_the_file_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(document()), encoding="utf-8")
    assert read_config(tmp_path) == parse(document())


def test_an_unreadable_or_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path / "nowhere")
    assert caught.value.code == "checkpoint.unreadable"
    (tmp_path / "config.json").write_bytes(b" " * ((1 << 20) + 5))
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path)
    assert caught.value.code == "config.invalid"


def _listed(document: str, row: str) -> set[str]:
    """The names in backquotes of a row of the table of K3."""
    (line,) = [line for line in document.splitlines() if line.startswith(f"| {row} |")]
    return set(re.findall(r"`([^`]+)`", line))


def test_the_document_lists_the_keys_without_influence() -> None:
    document = SPEC.read_text(encoding="utf-8")
    assert _listed(document, "text") == qwen35_config._INERT
    assert _listed(document, "wrapper") | qwen35_config._INERT == qwen35_config._WRAPPER_INERT


@pytest.mark.parametrize("name", sorted(qwen35_config._WRAPPER_INERT - {"architectures"}))
def test_a_key_without_influence_may_have_any_value(name: str) -> None:
    value = {**document(), name: {"some": ["thing"]}}
    assert parse(value) == parse(document())
    if name in qwen35_config._INERT:
        assert parse(document("text", **{name: -1})) == parse(document())
