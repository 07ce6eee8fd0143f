"""Every scenario leaves the trace that is told in it.

A trace that is another one now is a change of what the system does. Understand why before you
commit it: then `tools/bazel run //simulation:scenario -- --rewrite testdata/scenarios/*.txt` writes
the new traces, and the difference in git is what a reviewer judges.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from errors import ConfigError
from simulation.faults import FaultKind
from simulation.scenario import main, run_scenario
from simulation.scenario_text import Block, parse_scenario, spell_scenario

FOLDER = Path("testdata/scenarios")
FILES = sorted(path.name for path in FOLDER.iterdir())
GROUP = "group ranks=1 batch=1 sequence=1"
REFUSED = {
    "an unknown command": "dance",
    "an unknown setting": f"{GROUP} colour=red",
    "a setting twice": f"{GROUP} ranks=2",
    "a setting without a value": "group ranks",
    "a group that can't be": "group ranks=3\nopen",
    "a step before the group is open": f"{GROUP}\nstep",
    "an unknown mischief": f"{GROUP}\nmischief rank=0 kind=sings frame=HELLO",
    "an unknown delivery": f"{GROUP} deliver=pigeon",
}


@pytest.mark.parametrize("name", FILES)
def test_the_trace_is_the_one_told(name: str) -> None:
    told = (FOLDER / name).read_text("ascii")
    blocks = parse_scenario(told)
    for block, played in zip(blocks, run_scenario(blocks), strict=True):
        assert played.trace == block.trace
    assert spell_scenario(blocks) == told


def test_there_is_a_scenario_of_each_fault() -> None:
    assert {f"{kind.value}.txt" for kind in FaultKind} <= set(FILES)
    assert len(FILES) >= 10


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_scenario_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        run_scenario([Block(tuple(REFUSED[name].split("\n")))])


def test_a_block_needs_its_separator() -> None:
    with pytest.raises(ConfigError):
        parse_scenario("# fine\n\nopen\n")


def test_a_changed_trace_is_noticed_and_rewritten(tmp_path: Path) -> None:
    told = (FOLDER / "clean_run.txt").read_text("ascii")
    changed = tmp_path / "changed.txt"
    changed.write_text(told.replace("> 1 ACK", "> 0 ACK"), "ascii")
    assert main([str(changed)]) == 1
    assert main(["--rewrite", str(changed)]) == 0
    assert changed.read_text("ascii") == told
    assert main([str(changed)]) == 0
