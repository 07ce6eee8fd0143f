"""The figure has an element for every case and shape, where docs/spec/evidence.md E10 puts it."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

import pytest

from evidence.figure import HEIGHT, WIDTH, error_y, figure
from evidence.made_up import made_up_records

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def root() -> ElementTree.Element:
    return ElementTree.fromstring(figure(made_up_records()))


def test_the_elements_are_complete(root: ElementTree.Element) -> None:
    classes = Counter(element.get("class", "") for element in root.iter())
    assert (classes["case"], classes["fault"]) == (192, 96)
    assert (classes["bytes"], classes["formula"]) == (24, 24)


@pytest.mark.parametrize(
    ("case_id", "x"),
    [
        ("clean-r1-b1-t1-s1-pairwise", "83.0"),
        ("clean-r1-b2-t1-s4-pairwise", "107.5"),
        ("clean-r1-b1-t1-s1-rank", "223.0"),
        ("clean-r4-b2-t7-s4-rank", "912.5"),
    ],
)
def test_places_of_points(root: ElementTree.Element, case_id: str, x: str) -> None:
    (point,) = [e for e in root.iter(f"{SVG}circle") if e.get("data-case") == case_id]
    value = point.get("data-value") or ""
    assert (point.get("cx"), point.get("cy")) == (x, f"{error_y(float(value)):.1f}")


def test_places_of_cells(root: ElementTree.Element) -> None:
    cells = {
        element.get("data-case"): element
        for element in root.iter(f"{SVG}rect")
        if element.get("class") == "fault"
    }
    cell = cells["fault-cancellation_race-result-s4"]
    assert (cell.get("x"), cell.get("y")) == ("642.0", "562.0")
    assert cell.get("data-code") == "deadline.receive"


def test_bars_end_at_their_formula(root: ElementTree.Element) -> None:
    bars = [e for e in root.iter(f"{SVG}rect") if e.get("class") == "bytes"]
    lines = [e for e in root.iter(f"{SVG}line") if e.get("class") == "formula"]
    assert [bar.get("y") for bar in bars] == [line.get("y1") for line in lines]
    tallest = max(bars, key=lambda bar: float(bar.get("height") or 0))
    assert (tallest.get("height"), tallest.get("data-value")) == ("180.0", "29184")


def test_nothing_is_drawn_outside(root: ElementTree.Element) -> None:
    for element in root.iter():
        for key in ("x", "x1", "x2", "cx"):
            assert 0 <= float(element.get(key, "0")) <= WIDTH
        for key in ("y", "y1", "y2", "cy"):
            assert 0 <= float(element.get(key, "0")) <= HEIGHT


@pytest.mark.parametrize(("value", "y"), [(1e-5, 60), (1e-6, 140), (1e-8, 300), (0, 300), (1, 60)])
def test_errors_beyond_the_axis_stay_on_it(value: float, y: float) -> None:
    assert error_y(value) == pytest.approx(y)
