"""How the page looks and reads in a real browser: themes, contrast, widths, names, motion."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from coordinator.serving.fake_engine_server import FakeEngineServer
from coordinator.serving.fake_engine_story import FAILURE, engine
from tools.browser.chromium import Browser, chromium
from tools.browser.tab import Tab
from tools.python.tiers import mostly_exhaustive

SHOWN = "document.querySelector('#stat-slots').textContent.includes('of')"
GROUND = "getComputedStyle(document.body).backgroundColor"
CONTRAST_MIN = 4.5
MARK_MIN = 3.0
# Of each element with text of its own: its selector, colour and first ground that is not clear.
COLOURS = """
[...document.querySelectorAll('body *')].flatMap((node) => {
  const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
  const box = node.getBoundingClientRect();
  const skipped = box.width < 2 || box.height < 2 || node.closest('noscript, svg, :disabled');
  if (!own || skipped) return [];
  let ground = node;
  const clear = (colour) => colour === 'rgba(0, 0, 0, 0)' || colour === 'transparent';
  while (clear(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
  const name = `${node.tagName.toLowerCase()}#${node.id}.${node.className}`;
  return [[name, getComputedStyle(node).color, getComputedStyle(ground).backgroundColor]];
})
"""
# Of every kind of mark that is drawn in colour, its fill.
FILLS = """
[...document.querySelectorAll('.steps [data-kind], .pages [data-tint]')]
  .map((node) => [node.dataset.kind ?? node.dataset.tint, getComputedStyle(node).fill])
  .filter(([kind]) => kind !== 'whole')
"""
# Controls that a screen reader could not name.
NAMELESS = """
[...document.querySelectorAll('button, input, textarea, a, dialog, [role=button], [role=img]')]
  .filter((node) => !(node.getAttribute('aria-label') || node.textContent.trim()
    || node.labels?.length || node.getAttribute('aria-labelledby')))
  .map((node) => node.outerHTML.slice(0, 80))
"""
# What has the focus, and the ring around it.
FOCUSED = """
(() => {
  const node = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(node);
  const svg = node.className.baseVal;
  const name = node === document.body ? 'BODY' : node.id || svg || node.textContent.trim();
  return [name, outlineStyle === 'none' ? 'none' : `${outlineStyle} ${outlineWidth}`];
})()
"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[FakeEngineServer]:
    failed = engine(119, phase="failed", failure=FAILURE, live=0)
    with FakeEngineServer({**engine(119), "failure": failed["failure"]}) as running:
        yield running


@pytest.fixture
def tab(browser: Browser, server: FakeEngineServer) -> Iterator[Tab]:
    opened = browser.tab()
    opened.goto(server.url)
    opened.wait_for(SHOWN)
    yield opened
    opened.close()


def luminance(colour: str) -> float:
    """WCAG 2 relative luminance of `rgb(r, g, b)`."""
    channels = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_measured_right() -> None:
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") < CONTRAST_MIN


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.exhaustive), "dark"])
def test_text_has_contrast(tab: Tab, scheme: str) -> None:
    tab.media(prefers_color_scheme=scheme)
    colours = tab.evaluate(COLOURS)
    assert len(colours) > 50
    faint = [c for c in colours if contrast(c[1], c[2]) < CONTRAST_MIN]
    assert faint == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.exhaustive)])
def test_marks_of_the_charts_have_contrast(tab: Tab, scheme: str) -> None:
    tab.media(prefers_color_scheme=scheme)
    fills = dict(tab.evaluate(FILLS))
    assert {"compute", "wire", "wait", "reduce", "0", "1", "2", "3"} <= set(fills)
    card = tab.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
    assert {kind: fill for kind, fill in fills.items() if contrast(fill, card) < MARK_MIN} == {}


@pytest.mark.exhaustive
def test_long_names_and_many_requests_fit(browser: Browser) -> None:
    failure = {**FAILURE, "message": "x" * 900, "phase": "p" * 200}
    story = {**engine(119, phase="failed", failure=failure, live=300), "model": "m" * 200}
    with FakeEngineServer(story) as long:
        opened = browser.tab(380, 900)
        opened.goto(long.url)
        opened.wait_for(SHOWN)
        assert opened.evaluate(OVERFLOW) == 0
        assert opened.evaluate("document.querySelectorAll('#requests > li').length") == 300
        assert opened.evaluate("document.querySelector('#requests').clientHeight") < 900
        opened.close()


def test_the_system_and_the_button_choose_the_theme(tab: Tab) -> None:
    tab.media(prefers_color_scheme="dark")
    assert luminance(tab.evaluate(GROUND)) < 0.05
    tab.media(prefers_color_scheme="light")
    assert luminance(tab.evaluate(GROUND)) > 0.8
    grounds = []
    for _ in range(3):
        tab.focus("#theme")
        tab.press("Enter")
        grounds.append((tab.text("#theme"), luminance(tab.evaluate(GROUND)) > 0.5))
    assert grounds == [("Theme: light", True), ("Theme: dark", False), ("Theme: system", True)]


@pytest.mark.parametrize(
    "width",
    mostly_exhaustive([380, 700, 1119, 1120, 1440, 2560], lambda width: width in (380, 1440)),
)
def test_nothing_scrolls_sideways(tab: Tab, width: int) -> None:
    tab.viewport(width, 900)
    tab.cdp.pump(0.2)
    assert tab.evaluate(OVERFLOW) == 0
    tab.click("#timeline .step:last-child")
    tab.wait_for("document.querySelector('#frames tbody tr') !== null")
    panel = "document.querySelector('#step')"
    assert tab.evaluate(f"{panel}.scrollWidth - {panel}.clientWidth") == 0
    assert tab.evaluate(f"{panel}.getBoundingClientRect().width") <= width


def test_everything_has_a_name(tab: Tab) -> None:
    assert tab.evaluate(NAMELESS) == []
    tab.click("#timeline .step:last-child")
    tab.wait_for("document.querySelector('#frames tbody tr') !== null")
    assert tab.evaluate(NAMELESS) == []
    tab.evaluate("document.body.append(document.createElement('button'))")
    assert len(tab.evaluate(NAMELESS)) == 1


def test_tab_reaches_everything_and_the_focus_shows(tab: Tab) -> None:
    seen = []
    for _ in range(30):
        tab.press("Tab")
        name, outline = tab.evaluate(FOCUSED)
        if name == "BODY":
            break
        seen.append(name)
        # A step of the timeline shows its focus on its own column.
        assert outline == ("none" if name == "step" else "solid 2px"), name
    wanted = {"theme", "step", "prompt", "max-tokens", "temperature", "send", "answer", "Cancel"}
    assert wanted <= set(seen)
    # The steps are one stop among the others; arrow keys move within.
    assert seen.count("step") == 1
    tab.focus("#timeline .step:last-child")
    tab.press("ArrowLeft")
    column = "getComputedStyle(document.activeElement.querySelector('.hit')).stroke"
    assert tab.evaluate(column).startswith("rgb")


@pytest.mark.exhaustive
def test_motion_stops_for_those_who_ask(tab: Tab) -> None:
    moving = "document.getAnimations().filter((a) => a.playState === 'running').length"
    tab.media(prefers_reduced_motion="no-preference")
    assert tab.evaluate(moving) > 0
    tab.media(prefers_reduced_motion="reduce")
    assert tab.evaluate(moving) == 0


@pytest.mark.exhaustive
def test_digits_are_of_one_width(tab: Tab) -> None:
    style = "getComputedStyle(document.querySelector('#stat-rate')).fontVariantNumeric"
    assert tab.evaluate(style) == "tabular-nums"


def test_numbers_are_shown_as_people_read_them(tab: Tab) -> None:
    cases: dict[str, list[tuple[float, object]]] = {
        "bytes": [(0, "0 B"), (1023, "1,023 B"), (1536, "1.50 KiB"), (45 << 20, "45.0 MiB")],
        "micros": [(0, "0.00 µs"), (999, "999 µs"), (12_345, "12.3 ms"), (2_000_000, "2.00 s")],
        "seconds": [(0.004, "4 ms"), (59.94, "59.9 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")],
        "tick": [(0, "0"), (2000, "2 ms"), (1500, "1.5 ms"), (50, "50 µs"), (1e6, "1 s")],
        "real": [(0, "0"), (0.25, "0.2500"), (-8.06e-4, "-8.06e-4"), (1e9, "1.00e+9")],
        "niceCeiling": [(0, 1), (1, 1), (1.1, 2), (2.1, 5), (51, 100)],
    }
    module = "import('/page/format.js')"
    for name, pairs in cases.items():
        values = json.dumps([value for value, _ in pairs])
        shown = tab.evaluate(f"{module}.then((m) => {values}.map((v) => m.{name}(v)))")
        assert shown == [text for _, text in pairs], name
    assert tab.evaluate(f"{module}.then((m) => m.bytes(null).length)") == 1
