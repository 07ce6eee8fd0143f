"""Which programs a worker knows, and what opening them costs and refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from errors import ContractError
from model.binding import PROGRAMS, open_program
from program.block import PROGRAM_NAME, block_spec
from program.digest import program_digest
from program.qwen35 import Variant


def test_the_names_are_those_of_the_programs() -> None:
    assert set(PROGRAMS) == {PROGRAM_NAME, *(variant.value for variant in Variant)}


def test_the_block_opens_with_its_digest() -> None:
    opened = open_program(PROGRAM_NAME, {}, 1, 2)
    assert opened.spec == block_spec(2)
    assert opened.digest == program_digest(block_spec(2))


@pytest.mark.parametrize(
    ("program", "parameters", "world_size"),
    [
        ("", {}, 1),
        ("Block", {}, 1),
        (PROGRAM_NAME, {"seed": 1}, 1),
        (PROGRAM_NAME, {}, 3),
    ],
)
def test_what_it_does_not_have_is_refused(
    program: str, parameters: dict[str, object], world_size: int
) -> None:
    with pytest.raises(ContractError) as refusal:
        open_program(program, parameters, 0, world_size)
    assert refusal.value.code == "contract.program"


def test_a_worker_of_the_block_never_imports_a_model() -> None:
    code = (
        "import sys; from model.binding import open_program; open_program('block', {}, 0, 1); "
        "print([name for name in sys.modules if 'qwen35' in name])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
