"""Checks the types of all wheels once, for every later check: mypy_cache.py CONFIG FOLDER

What mypy knows of them and of the standard library then comes out of FOLDER, if a file still has
the digest that it had; that is half of the time that checking this repository takes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

# What is imported from wheels. One that is missing here is checked each time.
MODULES = (
    ("google.protobuf", "descriptor"),
    ("google.protobuf", "message"),
    ("google.protobuf", "text_format"),
    ("h11", "Connection"),
    ("httpx2", "Client"),
    ("hypothesis", "strategies"),
    ("jinja2", "sandbox"),
    ("numpy", "typing"),
    ("openai", "OpenAI"),
    ("prometheus_client", "parser"),
    ("pytest", "MonkeyPatch"),
    ("runfiles", "Runfiles"),
    ("starlette", "applications"),
    ("starlette", "responses"),
    ("starlette", "routing"),
    ("tokenizers", "Tokenizer"),
    ("uvicorn.protocols.http", "h11_impl"),
    ("websockets.sync", "client"),
)


def main(argv: list[str]) -> int:
    """Fills FOLDER."""
    config, folder = (str(Path(argument).absolute()) for argument in argv)
    with tempfile.TemporaryDirectory() as name:
        source = Path(name, "every_wheel.py")
        lines = [f"from {package} import {module}\n" for package, module in MODULES]
        source.write_text("".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", folder]
        return subprocess.run([*command, source.name], cwd=name, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
