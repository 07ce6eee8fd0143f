"""`replay DIR`: one side of a recorded run again, fed from the tape, compared byte for byte.

The coordinator is replayed in this process; a worker is a fresh one that the caller opens.
"""

from __future__ import annotations

from typing import TextIO

from coordinator.options import ReplayOptions
from coordinator.recording import read_recording
from coordinator.replay_coordinator import replay_coordinator
from coordinator.replay_result import render_replay
from coordinator.replay_worker import WorkerOpener, replay_worker
from coordinator.terminal import Style
from errors import ConfigError
from manifest.value_rules import shown


def show_replay(
    options: ReplayOptions, open_worker: WorkerOpener, output: TextIO, style: Style
) -> int:
    """Writes the verdict; returns the exit code: 0 identical, 1 not.

    open_worker: a pipe to a fresh worker of a rank. Raises ConfigError for a broken folder.
    """
    recording = read_recording(options.directory)
    if recording.manifest.model is not None:
        rule = "is of a model, whose load reports differ from run to run; only the block replays"
        raise ConfigError.single("DIR", shown(options.directory), rule)
    which = "all ranks" if options.rank is None else f"rank {options.rank}"
    if options.role == "worker":
        result = replay_worker(recording, options.rank, open_worker)
        who = f"the workers, {which}" if options.rank is None else f"the worker of {which}"
    else:
        result = replay_coordinator(recording, options.rank)
        who = f"the coordinator, {which}"
    output.write(render_replay(result, who, style))
    return 0 if result.difference is None else 1
