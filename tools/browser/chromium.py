"""A headless Chromium of our own: started with an empty profile, ended and reaped with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.browser.cdp import BrowserError, Cdp
from tools.browser.tab import Tab

VARIABLE: Final = "RANKPROOF_CHROMIUM"
START_S: Final = 30.0
END_S: Final = 5.0
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--hide-scrollbars",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)


def executable() -> Path:
    """The browser that the environment names. Raises BrowserError when it names none."""
    named = os.environ.get(VARIABLE, "")
    if not named:
        raise BrowserError(
            f"{VARIABLE} is not set: it must name the Chromium that the page is tested in"
        )
    path = Path(named)
    if not path.is_file():
        raise BrowserError(f"{VARIABLE} = {named}: there is no such file")
    return path


class Browser:
    """One running browser; its tabs share a profile that is deleted with it."""

    def __init__(self, process: subprocess.Popen[bytes], cdp: Cdp) -> None:
        self._process = process
        self._cdp = cdp

    def tab(self, width: int = 1280, height: int = 900) -> Tab:
        """A new tab with a viewport of so many CSS pixels."""
        return Tab.open(self._cdp, width, height)

    @property
    def pid(self) -> int:
        """The browser's process; it leads a process group of its own."""
        return self._process.pid


@contextlib.contextmanager
def chromium(path: Path | None = None) -> Iterator[Browser]:
    """A browser for the length of a `with`. path: None for the one the environment names."""
    binary = executable() if path is None else path
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        profile = Path(folder) / "profile"
        log = Path(folder) / "stderr"
        process = _start(binary, profile, log)
        try:
            with Cdp.open(_endpoint(process, profile, log), START_S) as cdp:
                yield Browser(process, cdp)
                with contextlib.suppress(BrowserError):
                    cdp.call("Browser.close", timeout_s=END_S)
        finally:
            _end(process)


def _start(binary: Path, profile: Path, log: Path) -> subprocess.Popen[bytes]:
    environment = {"HOME": str(profile.parent), "PATH": os.environ.get("PATH", os.defpath)}
    for name in ("FONTCONFIG_FILE", "FONTCONFIG_PATH", "LD_LIBRARY_PATH"):
        if name in os.environ:
            environment[name] = os.environ[name]
    with log.open("wb") as stderr:
        return subprocess.Popen(
            [str(binary), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )


def _endpoint(process: subprocess.Popen[bytes], profile: Path, log: Path) -> str:
    """The browser writes its port and path into this file of its profile once it listens."""
    deadline = time.monotonic() + START_S
    file = profile / "DevToolsActivePort"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = log.read_text("utf-8", "replace").strip().splitlines()[-3:]
            raise BrowserError(f"the browser ended with {process.returncode}: {' | '.join(said)}")
        if file.is_file():
            lines = file.read_text("ascii").splitlines()
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.02)
    raise BrowserError(f"the browser did not listen within {START_S:g} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Reap the browser, which was asked to end or is told to; its process group ends with it."""
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(END_S)
