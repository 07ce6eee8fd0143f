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

# A compiled module that only one minor version of CPython can load, as NumPy's are.
_MODULE = re.compile(r"^(?P<name>.*)\.cpython-3(?P<minor>\d+)-.*\.so$")
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
candidates=({candidates})
[ -z "${{RANKPROOF_PYTHON:-}}" ] || candidates=("$RANKPROOF_PYTHON")
for candidate in "${{candidates[@]}}"; do
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


def minors(paths: Iterable[str]) -> list[int]:
    """The minor versions that can load every compiled module; empty where there is none to load."""
    versions: dict[str, set[int]] = {}
    for path in paths:
        match = _MODULE.match(path)
        if match:
            versions.setdefault(match["name"], set()).add(int(match["minor"]))
    if not versions:
        return []
    common = set.intersection(*versions.values())
    if not common:
        raise SystemExit("no version of CPython can load all compiled modules")
    return sorted(common)


def launcher(name: str, program: str, paths: Iterable[str]) -> str:
    """The script that starts the program, with what its compiled modules ask of the interpreter."""
    found = minors(paths)
    if found:
        condition = f'[[ " {" ".join(map(str, found))} " = *" ${{found[2]}} "* ]]'
        requirement = "CPython " + ", ".join(f"3.{minor}" for minor in found)
    else:
        condition = f'[ "${{found[2]}}" -ge {MINIMUM_MINOR} ]'
        requirement = f"CPython 3.{MINIMUM_MINOR} or later"
    # The version of the build first, then the machine's default.
    first, *others = (f"python3.{minor}" for minor in found or [MINIMUM_MINOR])
    return LAUNCHER.format(
        name=name,
        program=program,
        candidates=" ".join([first, "python3", *others]),
        condition=condition,
        requirement=requirement,
    )


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
