"""Writes a tar of the listed files whose bytes depend on nothing but their contents.

Sorted, no times, no owners, modes 644 and 755, not compressed (compressed bytes differ between
versions of zlib). In the archive:

    NAME/NAME                             starts the program with the machine's CPython
    NAME/runfiles/...                     the files as Bazel's runfiles lay them out
    NAME/runfiles/python3_11/bin/python3  stands for the interpreter, which is not packed
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

# Compiled modules that only one minor version of CPython can load, as NumPy's are.
_ABI = re.compile(r"\.cpython-3(?P<minor>\d+)-")
MINIMUM_MINOR = 11

LAUNCHER = """\
#!/bin/bash
# Starts {name} with this machine's CPython; RANKPROOF_PYTHON names one that is not on PATH.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
probe='
import platform, sys
print(platform.python_implementation(), sys.version_info[0], sys.version_info[1],
      sys.platform, platform.machine(), sys.base_prefix, sys._base_executable, sep="\\n")'
for candidate in ${{RANKPROOF_PYTHON:-python3.11 python3 python3.12 python3.13 python3.14}}; do
  mapfile -t found < <("$candidate" -I -S -c "$probe" 2>/dev/null)
  if [ "${{#found[@]}}" = 7 ] && [ "${{found[0]}} ${{found[1]}}" = "CPython 3" ] &&
    [ "${{found[3]}} ${{found[4]}}" = "linux x86_64" ] && {condition}; then
    export RANKPROOF_PYTHON_HOME=${{found[5]}} RANKPROOF_PYTHON=${{found[6]}}
    export RUNFILES_DIR="$here/runfiles"
    exec "$here/runfiles/{program}" "$@"
  fi
done
echo "{name}: this archive needs {requirement} on Linux x86-64; install it, or set" \\
  "RANKPROOF_PYTHON to its path." >&2
exit 2
"""

# As argv[0] this file's own path: sys.executable is then this file again, and a child process
# started with it is as shut off from the machine's packages as its parent.
INTERPRETER = """\
#!/bin/bash
export PYTHONHOME=$RANKPROOF_PYTHON_HOME
exec -a "$0" "$RANKPROOF_PYTHON" -S -s "$@"
"""


def launcher(name: str, program: str, paths: Iterable[str]) -> str:
    """The script that starts the program, with what its compiled modules ask of the interpreter."""
    minors = {int(match["minor"]) for path in paths if (match := _ABI.search(path))}
    if len(minors) > 1:
        raise SystemExit(f"compiled modules for different versions of CPython: {sorted(minors)}")
    if minors:
        (minor,) = minors
        condition, requirement = f'[ "${{found[2]}}" = {minor} ]', f"CPython 3.{minor}"
    else:
        condition = f'[ "${{found[2]}}" -ge {MINIMUM_MINOR} ]'
        requirement = f"CPython 3.{MINIMUM_MINOR} or later"
    return LAUNCHER.format(name=name, program=program, condition=condition, requirement=requirement)


def is_program(path: str, data: bytes) -> bool:
    """Whether a file is to be executable. Bazel marks every output so; its contents tell."""
    return data.startswith((b"#!", b"\x7fELF")) and not path.endswith((".py", ".so"))


def write(out: Path, root: str, files: dict[str, bytes]) -> None:
    """Writes the tar: `files` maps paths below `root` to contents."""
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            info = tarfile.TarInfo(f"{root}/{path}")
            info.size = len(files[path])
            info.mode = 0o755 if is_program(path, files[path]) else 0o644
            archive.addfile(info, io.BytesIO(files[path]))


def main(argv: list[str]) -> int:
    """Packs the entries of a list file, lines `runfiles path<TAB>file`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--program", required=True, help="its path among the runfiles")
    parser.add_argument("list", type=Path)
    options = parser.parse_args(argv)
    files = {}
    for line in options.list.read_text(encoding="utf-8").splitlines():
        path, _, source = line.partition("\t")
        files[f"runfiles/{path}"] = Path(source).read_bytes()
    files["runfiles/python3_11/bin/python3"] = INTERPRETER.encode()
    files[options.name] = launcher(options.name, options.program, files).encode()
    write(options.out, options.name, files)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
