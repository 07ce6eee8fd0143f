from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.fake_rank import record_run
from coordinator.ledger_view import ledger_lines, show_ledger
from coordinator.options import LedgerOptions
from coordinator.recording import read_recording
from coordinator.run_files import RunFiles
from coordinator.terminal import WIDTH, Style
from errors import ConfigError
from manifest.run_manifest import from_flags

PLAIN = Style()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    record_run(from_flags({}), RunFiles(directory))
    return directory


def rows(folder: Path, options: LedgerOptions) -> list[str]:
    """The lines of the view without header and count."""
    lines = list(ledger_lines(read_recording(folder), options, PLAIN))
    assert lines[0].startswith("index")
    return lines[1:-1]


def test_every_frame_has_one_line_that_fits(folder: Path) -> None:
    lines = rows(folder, LedgerOptions(folder))
    assert len(lines) == 4 * 19
    assert [int(line.split()[0]) for line in lines] == list(range(4 * 19))
    assert all(len(line) <= WIDTH for line in lines)


FILTERS: list[tuple[LedgerOptions, int]] = [
    (LedgerOptions(Path(), rank=2), 19),
    (LedgerOptions(Path(), rank=2, direction="receive"), 6),
    (LedgerOptions(Path(), rank=2, direction="send"), 13),
    (LedgerOptions(Path(), kind="WEIGHT"), 28),
    (LedgerOptions(Path(), kind="PARTIAL", phase="mlp"), 4),
    (LedgerOptions(Path(), rank=0, phase="result"), 1),
    (LedgerOptions(Path(), rank=9), 0),
]


@pytest.mark.parametrize(("options", "count"), FILTERS)
def test_filters(folder: Path, options: LedgerOptions, count: int) -> None:
    assert len(rows(folder, options)) == count


def test_a_tensor_is_shown_with_statistics_and_values(folder: Path) -> None:
    lines = rows(folder, LedgerOptions(folder, rank=1, tensor="mlp.partial"))
    assert "mlp.partial [2,7,16]" in lines[0]
    assert "224 values <f4" in lines[1]
    assert "min 110" in lines[1]
    assert "max 333" in lines[1]
    assert lines[2].split() == ["[", "0]", "110", "111", "112", "113", "114"]
    assert len(lines) == 2 + -(-224 // 5)
    assert all(len(line) <= WIDTH for line in lines)


def test_a_refused_frame_says_so(tmp_path: Path) -> None:
    def tamper(rank: int, index: int, raw: bytes) -> bytes | None:
        return None if (rank, index) == (1, 1) else raw

    record_run(from_flags({"ranks": "2"}), RunFiles(tmp_path), tamper)
    last = rows(tmp_path, LedgerOptions(tmp_path))[-1]
    assert "deadline.receive" in last


def test_the_command(folder: Path) -> None:
    output = io.StringIO()
    assert show_ledger(LedgerOptions(folder, rank=0), output, PLAIN) == 0
    assert output.getvalue().splitlines()[-1].startswith("19 of 76")
    with pytest.raises(ConfigError):
        show_ledger(LedgerOptions(folder / "none"), output, PLAIN)


@pytest.fixture
def broken_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_a_reader_that_left_ends_the_view_quietly(folder: Path, broken_pipe: int) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from coordinator.ledger_view import show_ledger\n"
        "from coordinator.options import LedgerOptions\n"
        "from coordinator.terminal import Style\n"
        f"sys.exit(show_ledger(LedgerOptions(Path({str(folder)!r})), sys.stdout, Style()))\n"
    )
    # Child processes import from where this one does.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(
        [sys.executable, "-c", script],
        stdout=broken_pipe,
        stderr=subprocess.PIPE,
        env=environment,
        timeout=60,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, b"")
