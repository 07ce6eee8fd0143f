"""The fenced blocks of a document, run as a reader would: top to bottom, in one folder.

A block that starts a server replaces the one before it; every other one is run against it. A block
of `json` or `text` is what the block before it prints: of JSON the keys and types must agree, of
text each line must be found, where numbers may differ.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator.gates.http_serving import MODEL, WORKER, HttpServing, environment

BLOCK_S: Final = 120.0
SHELL: Final = ("bash", "-euo", "pipefail", "-c")
PORT: Final = "127.0.0.1:8000"
RUN: Final = "tools/bazel run //coordinator -- "
_FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER: Final = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
# What stands for the build tool: programs of these sources; a server has a model and a free port.
_BAZEL: Final = """\
#!/bin/sh
target=$2
shift 3
export BUILD_WORKING_DIRECTORY="$PWD"
case $target in
  //coordinator)
    set -- {worker} -- "$@" --port 0 --checkpoint {model}
    exec python3 -m coordinator.gates.serve_process "$@" ;;
  //tools:diff_trace) exec python3 -m tools.diff_trace.main "$@" ;;
  *) echo "nobody builds $target" >&2; exit 1 ;;
esac
"""


@dataclass(frozen=True)
class Block:
    """language: the word after the fence. line: where the fence is."""

    language: str
    text: str
    line: int

    @property
    def is_output(self) -> bool:
        return self.language in {"json", "text"}

    @property
    def starts_a_server(self) -> bool:
        return self.language == "sh" and RUN in self.text


def blocks(document: str) -> list[Block]:
    """All of them, in order."""
    return [
        Block(found.group(1), found.group(2), document.count("\n", 0, found.start()) + 1)
        for found in _FENCE.finditer(document)
    ]


def shape(value: object) -> object:
    """A JSON value without its contents: keys and types, of an array the first element's."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if type(value) in (int, float) else type(value).__name__


def differences(expected: Block, printed: str) -> list[str]:
    """What the document shows and the program did not print."""
    if expected.language == "json":
        wanted, found = shape(json.loads(expected.text)), shape(json.loads(printed))
        return [] if wanted == found else [f"shown {wanted}, printed {found}"]
    lines = {_NUMBER.sub("0", line) for line in printed.splitlines()}
    shown = expected.text.splitlines()
    return [f"not printed: {line}" for line in shown if _NUMBER.sub("0", line) not in lines]


@dataclass
class Reader:
    """Runs blocks in `folder`. address: of the running server; printed: by the last block."""

    folder: Path
    address: str = ""
    printed: str = ""
    _server: HttpServing | None = None

    def __post_init__(self) -> None:
        if shutil.which("curl") is None:
            raise AssertionError("curl is not installed, and the document's examples need it")
        self._program("tools/bazel", _BAZEL.format(worker=WORKER, model=MODEL))
        # The path of modules is this interpreter's, which no other would understand.
        self._program("bin/python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')

    def _program(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir()
        file.write_text(text)
        file.chmod(0o755)

    def read(self, block: Block) -> None:
        """Run it, or compare it with what was printed. Raises AssertionError."""
        where = f"the block at line {block.line}"
        if block.is_output:
            assert differences(block, self.printed) == [], where
        elif block.starts_a_server:
            self.close()
            self._server = self._start(block)
            self.address = f"127.0.0.1:{self._server.port}"
        else:
            self.printed = self._run(block, where)

    def close(self) -> None:
        """End the server, if one runs; it must end well."""
        server, self._server = self._server, None
        if server is not None:
            code, _ = server.end()
            server.leave_all()
            assert code == 0, server.log

    def kill(self) -> None:
        """However the reading ended, no server is left."""
        if self._server is not None:
            self._server.process.kill()
            self._server.process.communicate()
            self._server.leave_all()

    def _start(self, block: Block) -> HttpServing:
        process = subprocess.Popen(
            [*SHELL, block.text.replace(RUN, f"exec {RUN}")],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        server = HttpServing(process, {})
        try:
            server.await_log("serving at")
            server.await_port()
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return server

    def _run(self, block: Block, where: str) -> str:
        assert block.language in {"sh", "python"}, f"{where}: nobody runs {block.language}"
        interpreter = SHELL if block.language == "sh" else (sys.executable, "-c")
        ended = subprocess.run(
            [*interpreter, block.text.replace(PORT, self.address)],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_S,
            check=False,
        )
        assert ended.returncode == 0, f"{where}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def _environment(self) -> dict[str, str]:
        given = environment(self.folder)
        path = f"{self.folder / 'bin'}:{given['PATH']}"
        return {**given, "PATH": path, "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
