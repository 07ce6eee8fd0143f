"""Every size is a model that runs on two ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from program.qwen35 import Variant, qwen35_program
from program.qwen35_config import read_config
from tools.bench.synthetic import CONFIG, Size, config


@pytest.mark.parametrize("size", Size)
@pytest.mark.parametrize("variant", Variant)
def test_sizes(size: Size, variant: Variant, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config(size)))
    program = qwen35_program(read_config(tmp_path), variant, 2)
    assert program.hidden_size == 2560 // size.value


def test_full_size_is_the_model_itself() -> None:
    assert config(Size.FULL) == CONFIG
