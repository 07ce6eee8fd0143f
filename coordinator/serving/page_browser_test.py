"""The page in a real browser, over a server that follows a script: what people see and can do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from coordinator.serving.fake_engine_server import FakeEngineServer
from coordinator.serving.fake_engine_story import FAILURE, engine, step_detail
from tools.browser.chromium import Browser, chromium
from tools.browser.tab import Tab

LAST_STEP = "#timeline .step:last-child"
SHOWN = "document.querySelector('#stat-slots').textContent.includes('of')"
PANEL = (
    "document.querySelector('#step').open && document.querySelector('#frames tbody tr') !== null"
)

# The seconds of the page pass when the test says so.
SECONDS = """
const ticks = new Map();
const own = { setInterval, clearInterval };
window.setInterval = (tick, ms) => {
  if (ms !== 1000) return own.setInterval.call(window, tick, ms);
  const id = 1e9 + ticks.size;
  ticks.set(id, tick);
  return id;
};
window.clearInterval = (id) => {
  if (ticks.has(id)) ticks.set(id, () => {});
  else own.clearInterval.call(window, id);
};
window.second = () => { for (const tick of [...ticks.values()]) tick(); };
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def server() -> Iterator[FakeEngineServer]:
    with FakeEngineServer(engine(119)) as running:
        yield running


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    opened = browser.tab()
    yield opened
    opened.close()


def opened(tab: Tab, server: FakeEngineServer) -> Tab:
    tab.goto(server.url)
    tab.wait_for(SHOWN)
    return tab


def count(tab: Tab, selector: str) -> int:
    return int(tab.evaluate(f"document.querySelectorAll('{selector}').length"))


def text_is(selector: str, text: str) -> str:
    return f"document.querySelector({json.dumps(selector)}).textContent === {json.dumps(text)}"


def text_has(selector: str, text: str) -> str:
    where = f"document.querySelector({json.dumps(selector)})"
    return f"{where}.textContent.includes({json.dumps(text)})"


def test_it_shows_the_engine_and_follows_it(tab: Tab, server: FakeEngineServer) -> None:
    opened(tab, server)
    assert tab.text("#model") == "tiny-qwen35"
    assert tab.text("#phase") == "serving"
    assert tab.text("#stat-slots") == "4 of 8"
    assert tab.text("#stat-pages") == "72 of 256"
    assert tab.text("#stat-requests") == "4 running, 1 waiting"
    assert count(tab, "#ranks > li") == 2
    assert count(tab, "#requests > li") == 5
    assert count(tab, "#slots > li") == 8
    assert count(tab, "#timeline .step") == 60
    server.engine = engine(123, live=2)
    tab.wait_for(text_is("#stat-slots", "2 of 8"))
    assert tab.evaluate(f"document.querySelector('{LAST_STEP}').dataset.key") == "123"
    assert count(tab, "#requests > li") == 2
    tab.wait_for("/[0-9]/.test(document.querySelector('#stat-rate').textContent)")
    assert tab.problems() == []


def test_it_asks_nobody_but_its_server(tab: Tab, server: FakeEngineServer) -> None:
    opened(tab, server)
    tab.click(LAST_STEP)
    tab.wait_for(PANEL)
    origins = {urlsplit(url)[:2] for url in tab.requested()}
    assert origins == {urlsplit(server.url)[:2]}
    assert tab.problems() == []


def test_data_never_becomes_markup(tab: Tab, server: FakeEngineServer) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    failure = {**FAILURE, "message": nasty, "phase": nasty}
    server.engine = {**engine(119, phase="failed", failure=failure), "model": nasty}
    server.words = (nasty,)
    opened(tab, server)
    assert tab.text("#model") == nasty
    assert tab.text("#failure-message") == nasty
    tab.click("#send")
    tab.wait_for(text_has("#answer-status", "ended by length"))
    assert tab.text("#answer") == nasty
    assert count(tab, "img[src=x]") == 0
    # Even a mistake of the page could not turn text into markup: the policy of the page is on.
    refused = "(() => { try { document.body.innerHTML = 'x'; } catch (e) { return e.name; } })()"
    assert tab.evaluate(refused) == "TypeError"


@pytest.mark.exhaustive
def test_loading_tells_how_far_each_rank_is(tab: Tab, server: FakeEngineServer) -> None:
    server.engine = {**engine(0, phase="loading", live=0), "steps": []}
    opened(tab, server)
    assert tab.text("#phase") == "loading"
    assert "62%" in tab.text("#ranks > li:first-child")
    assert "53%" in tab.text("#ranks > li:last-child")
    assert tab.text("#timeline-none") == "No step has run yet."


def test_a_failure_is_in_plain_sight(tab: Tab, server: FakeEngineServer) -> None:
    opened(tab, server)
    assert not tab.text("#failure")
    server.engine = engine(119, phase="failed", failure=FAILURE, live=0)
    tab.wait_for(text_is("#failure-title", "Rank 1 failed"))
    assert tab.text("#failure-code") == FAILURE["code"]
    assert tab.text("#failure-message") == FAILURE["message"]
    facts = [tab.text(f"#failure-{name}") for name in ("rank", "phase", "step")]
    assert facts == ["1", FAILURE["phase"], "119"]
    assert tab.evaluate("document.querySelector('#failure').getBoundingClientRect().top < 200")
    assert count(tab, "#ranks > li[data-failed]") == 1
    assert count(tab, "#timeline .step[data-failed]") == 1
    assert count(tab, '#timeline .step[data-key="119"][data-failed]') == 1
    assert tab.evaluate("document.title").startswith("failed")
    assert tab.evaluate(text_is("#announce", "Now failed"))


@pytest.mark.exhaustive
def test_a_failure_between_steps_and_of_no_rank(tab: Tab, server: FakeEngineServer) -> None:
    failure = {**FAILURE, "rank": None, "phase": None, "step": None}
    server.engine = engine(119, phase="restarting", failure=failure, live=0)
    opened(tab, server)
    assert tab.text("#failure-title") == "The group failed in the last epoch"
    assert tab.text("#failure-step") == "between steps"


def test_a_click_opens_a_step(tab: Tab, server: FakeEngineServer) -> None:
    opened(tab, server)
    tab.click("#timeline .step[data-key='100']")
    tab.wait_for(PANEL)
    assert tab.text("#step-title") == "Step 100"
    detail = step_detail(100)
    assert count(tab, "#frames tbody tr") == len(detail["frames"])
    assert count(tab, "#lanes .span") == len(detail["spans"])
    assert count(tab, "#totals tbody tr") == 3
    # A span leads to its frames.
    tab.click("#lanes .span[data-kind='compute']")
    assert tab.text("#frames-text").endswith("rank 0, plan")
    assert count(tab, "#frames tbody tr") == 2
    tab.click("#frames-all")
    assert count(tab, "#frames tbody tr") == len(detail["frames"])
    tab.click("#step-close")
    tab.wait_for("!document.querySelector('#step').open")


@pytest.mark.exhaustive
def test_the_keyboard_opens_a_step_and_reads_it(tab: Tab, server: FakeEngineServer) -> None:
    opened(tab, server)
    tab.focus(LAST_STEP)
    assert "Step 119" in tab.text("#tip")
    tab.press("ArrowLeft")
    tab.press("ArrowLeft")
    assert "Step 117" in tab.text("#tip")
    tab.press("Home")
    assert "Step 60" in tab.text("#tip")
    tab.press("End")
    # The picture stands still while somebody looks, and says so.
    server.engine = engine(125)
    tab.wait_for("!document.querySelector('#held').hidden")
    tab.press("Enter")
    tab.wait_for(PANEL)
    assert tab.text("#step-title") == "Step 119"
    tab.focus("#lanes .span[tabindex='0']")
    first = tab.text("#span-text")
    tab.press("ArrowRight")
    assert tab.text("#span-text") != first
    tab.press("ArrowDown")
    assert tab.text("#span-text").startswith("rank 1")
    tab.press("Enter")
    assert "rank 1" in tab.text("#frames-text")
    tab.press("Escape")
    tab.wait_for("!document.querySelector('#step').open")
    assert tab.evaluate("document.activeElement.dataset.key") == "119"
    tab.press("Escape")
    tab.wait_for(f"document.querySelector('{LAST_STEP}').dataset.key === '125'")


@pytest.mark.exhaustive
def test_a_step_that_is_gone_is_said_to_be(tab: Tab, server: FakeEngineServer) -> None:
    server.kept = 118
    opened(tab, server)
    tab.click("#timeline .step[data-key='118']")
    tab.wait_for(PANEL)
    tab.click("#step-before")
    tab.wait_for("!document.querySelector('#step-problem').hidden")
    assert tab.text("#step-problem") == "step 117 is not kept"
    assert not tab.text("#frames")


@pytest.mark.exhaustive
def test_numbers_that_are_not_finite_stand_out(tab: Tab, server: FakeEngineServer) -> None:
    server.nonfinite = 3
    opened(tab, server)
    tab.click(LAST_STEP)
    tab.wait_for(PANEL)
    assert count(tab, "#frames tr[data-bad]") == 1
    assert "3" in tab.text("#frames tr[data-bad]")


def test_a_prompt_streams(tab: Tab, server: FakeEngineServer) -> None:
    opened(tab, server)
    tab.evaluate("document.querySelector('#prompt').value = ''")
    tab.focus("#prompt")
    tab.type_text("def add(a, b):")
    tab.press("Enter", "control")
    tab.wait_for(text_has("#answer-status", "ended by length"))
    assert tab.evaluate("document.querySelector('#answer').textContent") == "".join(server.words)
    status = tab.text("#answer-status")
    assert "11 tokens" in status
    assert "first after" in status
    assert "tokens/s" in status
    sent = server.prompts[0]
    assert (sent["prompt"], sent["max_tokens"], sent["stream"]) == ("def add(a, b):", 64, True)
    assert sent["model"] == "tiny-qwen35"
    assert server.hang_ups == 0
    assert tab.problems() == []


@pytest.mark.exhaustive
def test_stop_hangs_up(tab: Tab, server: FakeEngineServer) -> None:
    server.words = (" token",) * 5000
    opened(tab, server)
    tab.click("#send")
    tab.wait_for("document.querySelector('#answer').textContent.length > 30")
    tab.click("#stop")
    tab.wait_for(text_has("#answer-status", "Stopped"))
    tab.wait_for("!document.querySelector('#send').disabled")
    wait_until(tab, lambda: server.hang_ups == 1)


def test_a_stream_that_fails_says_why(tab: Tab, server: FakeEngineServer) -> None:
    server.broken = {"message": "rank 1 failed", "code": "group.poisoned"}
    opened(tab, server)
    tab.click("#send")
    tab.wait_for(text_is("#answer-status", "rank 1 failed"))
    assert tab.evaluate("document.querySelector('#answer-status').dataset.tone") == "bad"


def cancel_button(request_id: int) -> str:
    return f"#requests > li[data-key='{request_id}'] button"


@pytest.mark.exhaustive
def test_cancel_waits_and_can_be_undone(tab: Tab, server: FakeEngineServer) -> None:
    tab.before_load(SECONDS)
    opened(tab, server)
    tab.click(cancel_button(1))
    tab.wait_for(text_has(cancel_button(1), "Undo"))
    tab.evaluate("second()")
    tab.evaluate("second()")
    tab.click(cancel_button(1))
    tab.wait_for(text_is(cancel_button(1), "Cancel"))
    tab.evaluate("second()")
    tab.evaluate("second()")
    tab.focus(cancel_button(2))
    tab.press("Enter")
    for left in ("3 s", "2 s", "1 s"):
        assert tab.text(cancel_button(2)).endswith(left)
        tab.evaluate("second()")
    tab.wait_for("document.querySelector('#requests > li[data-key=\"2\"]') === null")
    assert server.deleted == ["cmpl-0002"]


@pytest.mark.exhaustive
def test_a_cancel_that_is_refused_is_said_to_be(tab: Tab, server: FakeEngineServer) -> None:
    server.refuse_delete = True
    opened(tab, server)
    tab.click(cancel_button(0))
    problem = "#requests > li[data-key='0'] .problem"
    tab.wait_for(text_has(problem, "the service is stopping"))
    assert tab.text(cancel_button(0)) == "Cancel"


@pytest.mark.exhaustive
def test_a_request_from_elsewhere_is_said_to_be(tab: Tab, server: FakeEngineServer) -> None:
    server.elsewhere = frozenset({0})
    opened(tab, server)
    tab.click(cancel_button(0))
    tab.wait_for(text_has("#requests > li[data-key='0'] .problem", "did not come over HTTP"))
    assert server.deleted == []


@pytest.mark.exhaustive
def test_a_server_that_is_gone_leaves_its_last_words_greyed(
    tab: Tab, server: FakeEngineServer
) -> None:
    opened(tab, server)
    server.stop()
    tab.wait_for("document.body.classList.contains('stale')")
    assert "does not answer" in tab.text("#lost")
    assert tab.text("#stat-slots") == "4 of 8"
    server.engine = engine(140, live=1)
    server.start()
    tab.click("#retry")
    tab.wait_for(text_is("#stat-slots", "1 of 8"))
    assert not tab.evaluate("document.body.classList.contains('stale')")
    assert not tab.text("#lost")


@pytest.mark.exhaustive
def test_a_key_is_asked_for_and_kept_in_memory_alone(tab: Tab, server: FakeEngineServer) -> None:
    server.key = "secret-1"
    tab.goto(server.url)
    for key, again in (("wrong", True), ("secret-1", False)):
        tab.wait_for("document.querySelector('#key').open")
        tab.focus("#key-value")
        tab.type_text(key)
        tab.press("Enter")
        if again:
            tab.wait_for(text_has("#key-text", "refused"))
    tab.wait_for(SHOWN)
    assert not tab.evaluate("document.querySelector('#key').open")
    assert tab.evaluate("document.querySelector('#key-value').value") == ""
    stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
    assert "secret" not in tab.evaluate(stored)
    assert "secret" not in tab.evaluate("location.href")


def wait_until(tab: Tab, happened: object) -> None:
    """Until the server has seen it; the browser goes on meanwhile."""
    assert callable(happened)
    for _ in range(200):
        if happened():
            return
        tab.cdp.pump(0.05)
    raise AssertionError("it did not happen within 10 s")
