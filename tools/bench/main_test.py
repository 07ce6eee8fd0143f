"""The command line refuses what can't be, before anything starts."""

from __future__ import annotations

import pytest

from tools.bench.main import main


@pytest.mark.parametrize(
    "argv",
    [
        ["block", "--rounds", "0"],
        ["model", "--tp", "3"],
        ["model", "--hf", "somewhere"],
        ["ab", "--rounds", "0"],
        ["ab", "--batch", "1"],
        ["ab", "--size", "third"],
        ["ab", "--size", "half", "--checkpoint", "somewhere"],
        ["ab", "--round", "1"],
        ["serve", "--requests", "0"],
        ["serve", "--rate", "nan"],
        ["serve", "--loads", "closed,flood"],
        ["serve", "--url", "somewhere"],
        ["serve", "--url", "http://127.0.0.1:1", "--checkpoint", "somewhere"],
        ["serve", "--api-key-file", "somewhere"],
        ["nothing"],
        [],
    ],
)
def test_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err.count("\n") == 1
