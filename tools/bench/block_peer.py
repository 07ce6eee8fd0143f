"""The same measurements of torch.distributed with gloo, by the baseline script that is given.

The script runs in an interpreter of its own, because nothing of torch belongs in this project.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from errors import ConfigError, TPError

SCRIPT = "peer_gloo_block.py"
TIMEOUT_S = 900


@dataclass(frozen=True)
class Peer:
    """folder: where the baseline scripts are. python: an interpreter that has torch."""

    folder: Path
    python: Path

    def check(self) -> None:
        """Raises ConfigError for a folder or an interpreter that is not there."""
        if not (self.folder / SCRIPT).is_file():
            raise ConfigError.single("--peers", self.folder, f"must hold {SCRIPT}")
        if not os.access(self.python, os.X_OK):
            raise ConfigError.single("--peer-python", self.python, "must be an interpreter")

    def measure(self, command: list[str]) -> list[dict[str, Any]]:
        """Run the baseline; its rows, with times in microseconds (steady) or seconds (case)."""
        with tempfile.TemporaryDirectory(prefix="rankproof-bench-") as name:
            folder = Path(name)
            for script in self.folder.glob("*.py"):
                (folder / script.name).symlink_to(script.resolve())
            # The baseline may wait for a quiet machine through this helper; here nobody waits.
            quiet = folder / "quiet.sh"
            quiet.write_text("#!/bin/sh\n")
            quiet.chmod(0o755)
            result = folder / "rows.json"
            argv = [str(self.python), str(folder / SCRIPT), *command, "--json", str(result)]
            ended = subprocess.run(
                argv,
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=TIMEOUT_S,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(folder)},
            )
            if ended.returncode or not result.exists():
                words = ended.stderr.decode("utf-8", "replace")[-400:]
                raise TPError("bench.peer", f"the baseline ended with {ended.returncode}: {words}")
            rows: list[dict[str, Any]] = json.loads(result.read_text())["rows"]
            return rows
