"""Makes the pictures of the page in docs/img from a real run: four scenes of one server.

    screenshots --coordinator FILE [--chromium FILE] [--out DIR]

It serves the embedded model on two ranks, keeps four requests running, sends one prompt from the
page, opens a step, and at last kills a worker. screenshots.json beside the pictures records of
which page they are: the digest of every source file of the page, and of every picture.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import sys
import threading
import urllib.error
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.browser.chromium import chromium
from tools.browser.served import Server, served
from tools.browser.tab import Tab

PAGE: Final = Path("coordinator/serving/page")
OUT: Final = Path("docs/img")
RECORD: Final = "screenshots.json"
NAMES: Final = ("serve-light.png", "serve-dark.png", "serve-step.png", "serve-failed.png")
BYTES_MAX: Final = 300_000
WIDTH: Final = 1440
HEIGHT: Final = 960
# Long enough to run through all scenes: a server that is asked for much, and one prompt in front.
BUSY_PROMPTS: Final = ("Return the", "def __init__(self", "Raises ", "class Test")
BUSY_TOKENS: Final = 900
SCENE_S: Final = 120.0


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sources(page: Path) -> dict[str, str]:
    """Name and digest of every file of the page."""
    return {path.name: digest(path) for path in sorted(page.iterdir())}


def main(argv: Sequence[str]) -> int:
    """Writes the pictures; prints where they are."""
    parser = argparse.ArgumentParser(prog="screenshots", allow_abbrev=False)
    parser.add_argument("--coordinator", required=True, type=Path)
    parser.add_argument("--chromium", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(argv)
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    out = root / given.out
    out.mkdir(parents=True, exist_ok=True)
    command = [str(given.coordinator), "serve", "--port", "0", "--linger-ms", "120000"]
    with served(command) as server, chromium(given.chromium) as browser:
        tab = browser.tab(WIDTH, HEIGHT)
        tab.media(prefers_color_scheme="light", prefers_reduced_motion="reduce")
        with busy(server):
            scenes(server, tab, out)
    record = {"page": sources(root / PAGE), "pictures": {n: digest(out / n) for n in NAMES}}
    (out / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    for name in NAMES:
        print(f"{out / name}  {(out / name).stat().st_size:,} bytes")
    return 0


def scenes(server: Server, tab: Tab, out: Path) -> None:
    """The four pictures, in the order of NAMES."""
    light, dark, step, failed = (out / name for name in NAMES)
    tab.goto(server.url)
    tab.wait_for("document.querySelectorAll('#timeline .step').length >= 60", SCENE_S)
    tab.click("#send")
    tab.wait_for("document.querySelector('#answer-status').textContent.includes('ended')", SCENE_S)
    tab.evaluate("document.activeElement.blur()")
    light.write_bytes(tab.screenshot())
    tab.media(prefers_color_scheme="dark", prefers_reduced_motion="reduce")
    tab.hover("#timeline .step:nth-last-child(34)")
    dark.write_bytes(tab.screenshot())
    tab.click("#timeline .step:nth-last-child(34)")
    tab.wait_for("document.querySelector('#frames tbody tr') !== null", SCENE_S)
    step.write_bytes(tab.screenshot())
    tab.press("Escape")
    tab.press("Escape")
    tab.hover("h1")
    tab.media(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    os.kill(server.get("/v1/engine")["ranks"][1]["pid"], signal.SIGKILL)
    tab.wait_for("!document.querySelector('#failure').hidden", SCENE_S)
    tab.wait_for("!document.querySelector('#requests-none').hidden", SCENE_S)
    tab.evaluate("scrollTo(0, 0)")
    failed.write_bytes(tab.screenshot())


@contextlib.contextmanager
def busy(server: Server) -> Iterator[None]:
    """Requests that run as long as the scenes do; their end is the server's business."""
    ended = threading.Event()

    def ask(prompt: str) -> None:
        body = {"model": server.get("/v1/models")["data"][0]["id"], "prompt": prompt}
        while not ended.is_set():
            with contextlib.suppress(urllib.error.HTTPError):
                server.post("/v1/completions", {**body, **settings()})
                continue
            # It was refused or broken off, because the group has failed.
            return

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in BUSY_PROMPTS]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(SCENE_S)


def settings() -> dict[str, object]:
    """Of a request that keeps the server busy."""
    return {"max_tokens": BUSY_TOKENS, "ignore_eos": True, "temperature": 0}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
