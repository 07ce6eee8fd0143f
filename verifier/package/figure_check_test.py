"""Only the checked elements count, each once and plain; nothing may show another picture."""

from __future__ import annotations

import pytest

from evidence.figure import figure
from evidence.made_up import made_up_records
from verifier.package.figure_check import FigureError, checked_elements, figure_problems

FIGURE = figure(made_up_records()).encode()
CASE = b'<circle class="case" data-case="clean-r1-b1-t1-s1-pairwise"'


def problems(old: bytes, new: bytes) -> list[str]:
    assert old in FIGURE
    return list(figure_problems(FIGURE.replace(old, new, 1), FIGURE))


def test_our_own_figure() -> None:
    assert list(figure_problems(FIGURE, FIGURE)) == []
    assert len(checked_elements(FIGURE)) == 336


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"<style>", b"<!-- a remark --><style>"),
        (b'fill-opacity="0.8"', b'fill-opacity="0.5"'),
        (b"</svg>", b'<text x="1" y="1">more</text></svg>'),
    ],
)
def test_what_is_free(old: bytes, new: bytes) -> None:
    assert problems(old, new) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (CASE, b'<g class="case" data-case="clean-r1-b1-t1-s1-pairwise"'),
        (CASE, CASE + b' transform="scale(1)"'),
        (CASE, CASE.replace(b'"case"', b'"case other"')),
        (CASE, CASE.replace(b'"case"', b'"other"')),
        (CASE, CASE.replace(b"<circle", b'<circle xmlns="urn:other"')),
        (b'cx="83.0"', b'cx="83.00"'),
        (b'data-rank="1"', b'data-rank="2"'),
        (b'data-value="29184" x=', b'data-value="29185" x='),
        (b"<style>", b'<style>@import url("x.css");'),
        (b"<style>", b'<image href="x.png"/><style>'),
        (b"<style>", b'<g onload="run()"/><style>'),
        (b"<style>", b'<rect fill="url(#x)"/><style>'),
        (b"<style>", b"<animateTransform/><style>"),
        (b'width="960"', b'width="10"'),
        (b'xmlns="http://www.w3.org/2000/svg"', b'xmlns="urn:other"'),
        (b"<svg", b"<?xml-stylesheet href='x'?><svg"),
        (b"<svg", b"<!DOCTYPE svg><svg"),
        (b"</svg>", b""),
    ],
)
def test_what_is_found(old: bytes, new: bytes) -> None:
    assert problems(old, new)


def test_a_second_element_is_refused() -> None:
    with pytest.raises(FigureError):
        checked_elements(FIGURE.replace(CASE, CASE + b"/>" + CASE, 1))
