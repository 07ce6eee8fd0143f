"""What a replay found, and how a terminal shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.frame_difference import FieldDifference
from coordinator.recording import Recording
from coordinator.terminal import Style, Tone
from errors import ConfigError


@dataclass(frozen=True)
class Difference:
    """The first place where replay and recording part. index: position in ledger and tape."""

    index: int
    rank: int
    what: FieldDifference


@dataclass(frozen=True)
class ReplayResult:
    """frames: how many were compared, up to the first difference."""

    frames: int
    difference: Difference | None


def check_rank(recording: Recording, rank: int | None) -> None:
    if rank is not None and rank >= recording.manifest.ranks:
        rule = f"must be below {recording.manifest.ranks}, the ranks of the recorded run"
        raise ConfigError.single("--rank", rank, rule)


def render_replay(result: ReplayResult, who: str, style: Style) -> str:
    """The verdict, and the first difference with both its values. who: the side replayed."""
    difference = result.difference
    if difference is None:
        verdict = style.paint("ok", Tone.GOOD)
        return f"{verdict}  replay of {who}: {result.frames} frames, byte-identical\n"
    verdict = style.paint("DIFFERS", Tone.BAD)
    return (
        f"{verdict}  replay of {who}: first difference at frame {difference.index}, "
        f"rank {difference.rank}: {difference.what.field}\n"
        f"  recorded  {difference.what.taped}\n"
        f"  replayed  {difference.what.replayed}\n"
    )
