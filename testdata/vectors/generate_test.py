"""The committed vector files are what the generator writes, in the form that README states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testdata.vectors.generate import FILES
from testdata.vectors.reading import load

HERE = Path(__file__).parent
RESULTS = {"valid", "invalid"}


@pytest.mark.parametrize("name", FILES)
def test_committed_file_is_the_generated_one(name: str) -> None:
    assert (HERE / name).read_bytes() == FILES[name]().to_bytes()


@pytest.mark.parametrize("name", FILES)
def test_every_vector_has_the_common_keys(name: str) -> None:
    content = load(name)
    seen: set[str] = set()
    for vector in content["vectors"]:
        assert vector["id"] not in seen
        seen.add(vector["id"])
        assert vector["comment"]
        assert vector["flags"]
        assert set(vector["flags"]) <= content["notes"].keys()
        assert vector["result"] in RESULTS
        assert (vector.get("code") is None) is (vector["result"] == "valid")


@pytest.mark.parametrize("name", FILES)
def test_every_note_is_used_and_comments_are_distinct(name: str) -> None:
    content = load(name)
    used = {flag for vector in content["vectors"] for flag in vector["flags"]}
    assert used == content["notes"].keys()
    told = [_told(vector) for vector in content["vectors"]]
    assert len(set(told)) == len(told)


def _told(vector: dict[str, Any]) -> tuple[str, str, str]:
    return vector.get("rule", ""), vector["flags"][0], vector["comment"]
