"""Where the worker's program is, and the environment it gets: nothing of the caller's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runfiles import Runfiles

from errors import ConfigError, TPError

_WORKER: Final = "rankproof/worker/worker"
_FAULTY_WORKER: Final = "rankproof/simulation/faulty_worker"
_MODEL: Final = "rankproof/testdata/tiny-qwen35/config.json"
# What a worker may see of the environment: where programs are, and how text is encoded.
_KEPT: Final = ("PATH", "TMPDIR", "HOME")


@dataclass(frozen=True)
class WorkerProgram:
    """How to start a worker: the head of its command line, and its whole environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def worker_program() -> WorkerProgram:
    """The production worker. Raises TPError when this build does not carry it."""
    path = _location(_WORKER)
    if path is None:
        raise TPError("process.start", f"this build carries no worker ({_WORKER})")
    return WorkerProgram((path,), _environment())


def faulty_worker_program() -> WorkerProgram:
    """The worker that can have a fault. Raises ConfigError when this build does not carry it."""
    path = _location(_FAULTY_WORKER)
    if path is None:
        rule = "needs the test-only worker, which this build is without"
        raise ConfigError.single("fault", "given", rule)
    return WorkerProgram((path,), _environment())


def faulty_worker_exists() -> bool:
    """Whether this build can plant faults."""
    return _location(_FAULTY_WORKER) is not None


def embedded_model() -> Path | None:
    """The folder of the model that this build carries, if it does."""
    path = _location(_MODEL, os.R_OK)
    return Path(path).parent if path is not None else None


def _location(runfile: str, access: int = os.X_OK) -> str | None:
    runfiles = Runfiles.Create()
    path = runfiles.Rlocation(runfile) if runfiles is not None else None
    return path if path is not None and os.access(path, access) else None


def _environment() -> dict[str, str]:
    runfiles = Runfiles.Create()
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    env |= runfiles.EnvVars() if runfiles is not None else {}
    # One BLAS thread per rank: ranks are the parallelism, and a pool in each would only fight.
    return env | {"LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}
