"""What py_dist is tested with: reports what it, a child and a grandchild see, and uses NumPy."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy
from runfiles import Runfiles


def packages_outside() -> list[str]:
    """Folders of installed packages that are not the archive's own."""
    return [entry for entry in sys.path if "-packages" in entry and "runfiles" not in entry]


def main(argv: list[str]) -> int:
    """With a number, reports as that generation; the first also starts the helper program."""
    generation = int(argv[0])
    seen = [packages_outside()]
    if generation < 3:
        command = [sys.executable, __file__, str(generation + 1)]
        seen += json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    if generation == 1:
        runfiles = Runfiles.Create()
        helper = runfiles.Rlocation("rankproof/tools/pack/demo_helper") if runfiles else None
        if helper is None:
            raise SystemExit("no helper")
        subprocess.run([helper], env={"PATH": os.environ["PATH"], **os.environ}, check=True)
        if any(seen):
            raise SystemExit(f"packages of the machine are seen: {seen}")
        return 0 if float(numpy.ones(3).sum()) == 3.0 else 1
    json.dump(seen, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
