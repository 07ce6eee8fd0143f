"""The browser is ours from start to end, and every wait for it has an end."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tools.browser.cdp import BrowserError
from tools.browser.chromium import VARIABLE, Browser, chromium, executable
from tools.browser.tab import Tab


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    opened = browser.tab(400, 300)
    yield opened
    opened.close()


def page(body: str) -> str:
    return "data:text/html," + quote(f"<!doctype html><title>t</title>{body}")


def test_without_a_browser_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(BrowserError, match=VARIABLE):
        executable()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    with pytest.raises(BrowserError, match=VARIABLE):
        executable()


def test_a_browser_that_ends_at_once_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_text("#!/bin/sh\necho no display >&2\nexit 7\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(BrowserError, match="ended with 7: no display"), chromium(program):
        pass


def test_the_browser_and_its_helpers_end_with_it() -> None:
    with chromium() as running:
        pid = running.pid
        running.tab().goto(page("x"))
        assert os.getpgid(pid) == pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert living_in_group(pid) == []


def living_in_group(group: int) -> list[int]:
    """Processes of the group that still run; one that has ended may wait to be reaped by init."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(int(folder.name))
    return found


def test_what_a_person_does_reaches_the_page(tab: Tab) -> None:
    tab.goto(page("<input id=i><button id=b onclick='this.textContent=i.value'>go</button>"))
    tab.focus("#i")
    tab.type_text("typed")
    tab.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "b"
    tab.press("Enter")
    assert tab.text("#b") == "typed"
    tab.evaluate("i.value = 'clicked'")
    tab.click("#b")
    assert tab.text("#b") == "clicked"


def test_hidden_text_and_missing_elements_have_no_text(tab: Tab) -> None:
    tab.goto(page("<p hidden>x</p>"))
    assert tab.text("p") == ""
    assert tab.text("#none") == ""


def test_every_wait_ends(tab: Tab) -> None:
    tab.goto(page("<p hidden>x</p>"))
    with pytest.raises(BrowserError, match="not true within"):
        tab.wait_for("false", 0.1)
    with pytest.raises(BrowserError, match="no answer within"):
        tab.cdp.call(
            "Runtime.evaluate",
            {"expression": "new Promise(() => {})", "awaitPromise": True},
            session=tab.session,
            timeout_s=0.2,
        )
    with pytest.raises(BrowserError, match="no area"):
        tab.click("p")


def test_mistakes_are_errors(tab: Tab) -> None:
    with pytest.raises(BrowserError, match="ReferenceError"):
        tab.evaluate("nothing_of_this_name")
    with pytest.raises(BrowserError):
        tab.call("Page.noSuchCommand")
    with pytest.raises(BrowserError, match="ERR_"):
        tab.goto("http://127.0.0.1:1/")


def test_problems_of_the_page_are_seen(tab: Tab) -> None:
    tab.goto(page("fine"))
    assert tab.problems() == []
    tab.goto(
        page("<script>console.error('planted'); setTimeout(() => { throw Error('x') })</script>")
    )
    tab.wait_for("true")
    tab.cdp.pump(0.2)
    assert any("planted" in problem for problem in tab.problems())
    assert any("Error: x" in problem for problem in tab.problems())
    assert tab.requested()[-1].startswith("data:")


def test_media_viewport_and_screenshot(tab: Tab) -> None:
    tab.goto(page("x"))
    for scheme in ("dark", "light"):
        tab.media(prefers_color_scheme=scheme)
        assert tab.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
    tab.viewport(380, 500)
    assert tab.evaluate("[innerWidth, innerHeight]") == [380, 500]
    png = tab.screenshot()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(png[16:20], "big") == 380
