"""The page in a real browser over a real server: the tiny model on two worker processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from coordinator.gates.http_serving import SLOW_WORKER, HttpServing, http_serving
from tools.browser.chromium import Browser, chromium
from tools.browser.tab import Tab

# A busy machine serves and draws slowly.
SOON_S = 60.0
BUSY = 900


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    opened = browser.tab()
    yield opened
    opened.close()


def opened(tab: Tab, server: HttpServing) -> None:
    tab.goto(f"http://127.0.0.1:{server.port}/")
    tab.wait_for("document.querySelector('#phase').textContent === 'serving'", SOON_S)


def test_prompts_steps_and_cancel(tab: Tab) -> None:
    with http_serving(worker_module=SLOW_WORKER) as server:
        opened(tab, server)
        tab.evaluate("document.querySelector('#max-tokens').value = 12")
        tab.click("#send")
        done = "document.querySelector('#answer-status').textContent.includes('ended by')"
        tab.wait_for(done, SOON_S)
        # What was streamed is what the model says at once.
        prompt = tab.evaluate("document.querySelector('#prompt').value")
        _, whole = server.complete(12, prompt=prompt, temperature=0, ignore_eos=False)
        said = tab.evaluate("document.querySelector('#answer').textContent")
        assert said == whole["choices"][0]["text"]
        a_step_is_opened(tab)
        stream = server.stream(BUSY)
        tab.wait_for("document.querySelector('#requests > li') !== null", SOON_S)
        tab.wait_for("document.querySelector('#stat-slots').textContent === '1 of 8'", SOON_S)
        # With the keyboard: the page grows with every step, and the mouse might miss.
        tab.focus("#requests > li button")
        tab.press("Enter")
        tab.wait_for("document.querySelector('#requests > li') === null", SOON_S)
        assert stream.rest()[-1]["error"]["code"] == "request.cancelled"
        stream.leave()
        tab.wait_for("document.querySelector('#stat-slots').textContent === '0 of 8'", SOON_S)
        assert server.is_idle()
        assert tab.problems() == []
        assert server.end()[0] == 0


def a_step_is_opened(tab: Tab) -> None:
    """The first one, of the prompt: every partial of both ranks is there with its statistics."""
    tab.wait_for("document.querySelector('#timeline .step[data-key=\"0\"]') !== null", SOON_S)
    tab.click("#timeline .step[data-key='0']")
    tab.wait_for("document.querySelector('#frames tbody tr') !== null", SOON_S)
    rows = tab.evaluate(
        "[...document.querySelectorAll('#frames tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    partials = [row for row in rows if row[2] == "PARTIAL" and row[4].startswith("layers.")]
    assert {row[1].split()[1] for row in partials} == {"0", "1"}
    assert all(row[11] != "" and row[13] == "0" for row in partials)
    lanes = tab.evaluate("document.querySelector('.lane-names').textContent")
    assert lanes == "coordinatorrank 0rank 1"
    tab.press("Escape")
    tab.press("Escape")


@pytest.mark.exhaustive
def test_a_killed_worker_is_shown_with_its_reason(tab: Tab) -> None:
    with http_serving(["--linger-ms", "600000"]) as server:
        opened(tab, server)
        pids = server.pids()
        os.kill(pids[1], signal.SIGKILL)
        tab.wait_for("!document.querySelector('#failure').hidden", SOON_S)
        reason = server.ready()["reason"]
        assert tab.text("#failure-code") == reason["code"]
        assert tab.text("#failure-message") == reason["message"]
        assert tab.text("#failure-title") == "Rank 1 failed"
        tab.click("#send")
        bad = "document.querySelector('#answer-status').dataset.tone === 'bad'"
        tab.wait_for(bad, SOON_S)
        assert server.end()[0] != 0
        tab.wait_for("document.body.classList.contains('stale')", SOON_S)
        assert tab.text("#failure-title") == "Rank 1 failed"


@pytest.mark.exhaustive
def test_a_restart_is_followed(tab: Tab) -> None:
    with http_serving(["--restart-policy", "on-failure"]) as server:
        opened(tab, server)
        before = tab.text("#shape")
        os.kill(server.pids()[0], signal.SIGKILL)
        tab.wait_for("document.querySelector('#stat-up').textContent.includes('1 restart')", SOON_S)
        tab.wait_for("document.querySelector('#phase').textContent === 'serving'", SOON_S)
        assert tab.text("#shape") != before
        assert not tab.text("#failure")
        tab.click("#send")
        done = "document.querySelector('#answer-status').textContent.includes('ended by')"
        tab.wait_for(done, SOON_S)
        assert server.end()[0] == 0


@pytest.mark.exhaustive
def test_the_key_of_a_real_server(tab: Tab, tmp_path_factory: pytest.TempPathFactory) -> None:
    key = tmp_path_factory.mktemp("key") / "api.key"
    key.write_text("secret-7\n")
    headers = {"Authorization": "Bearer secret-7"}
    with http_serving(["--api-key-file", str(key)], headers) as server:
        tab.goto(f"http://127.0.0.1:{server.port}/")
        tab.wait_for("document.querySelector('#key').open", SOON_S)
        tab.focus("#key-value")
        tab.type_text("secret-7")
        tab.press("Enter")
        tab.wait_for("document.querySelector('#phase').textContent === 'serving'", SOON_S)
        assert server.end()[0] == 0
