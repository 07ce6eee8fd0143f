from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from errors import ConfigError
from model import safetensors_file
from model.few_rows import HELD_NUMPY
from model.safetensors_file import MappedFile
from model.shard import take
from program.checkpoint import StoredDtype, StoredTensor
from program.partition import (
    Columns,
    OnRank,
    Replicated,
    Rows,
    Section,
    Sections,
    ShardRule,
    cut,
)
from program.safetensors import TensorEntry

OFFSET = 5  # not a multiple of anything: the format does not promise aligned data


def stored(folder: Path, values: npt.NDArray[np.generic], dtype: StoredDtype) -> StoredTensor:
    path = folder / "w.safetensors"
    data = values.astype(HELD_NUMPY[dtype]).tobytes()
    path.write_bytes(bytes(OFFSET) + data + bytes(3))
    entry = TensorEntry("w", dtype.value, values.shape, OFFSET, OFFSET + len(data))
    return StoredTensor(path, entry, dtype)


RULES: list[tuple[ShardRule, tuple[int, ...]]] = [
    (Replicated(), (12, 8)),
    (Rows(6), (12, 8)),
    (Columns(4), (12, 8)),
    (Sections((Section(2, 2), Section(2, 2), Section(2, 2))), (12, 8)),
    (Sections((Section(2, 3), Section(2, 3))), (12, 1, 4)),
    (Rows(4), (12,)),
    (Replicated(), (12,)),
    (OnRank(1), (12, 8)),
]


@pytest.mark.parametrize("block_bytes", [1, 40, 1 << 20])
@pytest.mark.parametrize("dtype", list(StoredDtype))
@pytest.mark.parametrize(("rule", "shape"), RULES)
def test_blocks_put_together_are_the_slice(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    rule: ShardRule,
    shape: tuple[int, ...],
    dtype: StoredDtype,
    block_bytes: int,
) -> None:
    monkeypatch.setattr(safetensors_file, "BLOCK_BYTES", block_bytes)
    values = np.arange(np.prod(shape)).reshape(shape)
    tensor = stored(tmp_path, values, dtype)
    file = MappedFile(tensor.file)
    for rank in range(2):
        expected = take(rule, values, rank, 2)
        found = np.full_like(expected, -1)
        for first, block in file.blocks(tensor, cut(rule, shape, rank, 2)):
            assert block.dtype == HELD_NUMPY[dtype]
            assert block.flags.c_contiguous
            assert block.nbytes <= max(block_bytes, values[0].size * dtype.item_bytes)
            found[first : first + len(block)] = block
        np.testing.assert_array_equal(found, expected)
    file.close()


def test_a_block_outlives_the_file(tmp_path: Path) -> None:
    tensor = stored(tmp_path, np.arange(6).reshape(2, 3), StoredDtype.FLOAT32)
    file = MappedFile(tensor.file)
    ((_, block),) = file.blocks(tensor, cut(Replicated(), (2, 3), 0, 1))
    file.close()
    np.testing.assert_array_equal(block, np.arange(6).reshape(2, 3))


def test_files_that_cannot_be_mapped_or_have_shrunk_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError) as caught:
            MappedFile(path)
        assert caught.value.code == "checkpoint.unreadable"
    tensor = stored(tmp_path, np.arange(6).reshape(2, 3), StoredDtype.FLOAT32)
    tensor.file.write_bytes(tensor.file.read_bytes()[: OFFSET + 20])
    file = MappedFile(tensor.file)
    with pytest.raises(ConfigError) as caught:
        list(file.blocks(tensor, cut(Replicated(), (2, 3), 0, 1)))
    assert caught.value.code == "checkpoint.header"
    file.close()
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ConfigError) as caught:
        MappedFile(tmp_path / "empty")
    assert caught.value.code == "checkpoint.unreadable"
