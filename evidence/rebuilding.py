"""Rebuilding cases in a fresh interpreter of another kind: for tests of what bytes depend on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from errors import EvidenceError
from evidence.main import main

_PROGRAM: Final = f"""
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from {main.__module__} import main
sys.exit(main(sys.argv[2:]))
"""
# What this NumPy uses on this processor beyond its baseline.
FEATURES: Final[list[str]] = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])


@dataclass(frozen=True)
class Setting:
    """What is different about an interpreter. umask: of the files it writes."""

    environment: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    umask: int = 0o022


SETTINGS: Final = {
    "no SIMD beyond the baseline": Setting({"NPY_DISABLE_CPU_FEATURES": " ".join(FEATURES)}),
    "half of the SIMD": Setting(
        {"NPY_DISABLE_CPU_FEATURES": " ".join(FEATURES[len(FEATURES) // 2 :])}
    ),
    "BLAS of an old processor": Setting({"OPENBLAS_CORETYPE": "Prescott"}),
    "BLAS of another processor, with threads": Setting(
        {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "2"}
    ),
    "without assertions": Setting(options=("-O",)),
    "another place and time": Setting(
        {
            "HOME": "/nonexistent",
            "LC_ALL": "tr_TR.UTF-8",
            "PYTHONHASHSEED": "4711",
            "TZ": "Pacific/Kiritimati",
            "USER": "somebody",
        },
        umask=0o077,
    ),
}


def rebuild(setting: Setting, out: Path, case_ids: Sequence[str] = ()) -> None:
    """Build these cases, or with none the whole package, into `out`.

    Raises EvidenceError with what the interpreter said, when it did not.
    """
    arguments = ["build", "--out", str(out), *(["--only", *case_ids] if case_ids else [])]
    path = json.dumps([str(Path(entry).absolute()) for entry in sys.path])
    done = subprocess.run(
        [sys.executable, "-B", *setting.options, "-c", _PROGRAM, path, *arguments],
        env={"PATH": "/usr/bin:/bin", **setting.environment},
        cwd="/",
        umask=setting.umask,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise EvidenceError("rebuild", done.stdout)
