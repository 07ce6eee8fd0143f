"""The checked elements of `figure.svg` (evidence.md E10)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

import matrix
from findings import shown

NAMESPACE = "http://www.w3.org/2000/svg"
WIDTH, HEIGHT = "960", "900"
_VIEW = f"0 0 {WIDTH} {HEIGHT}"
TAGS = {"case": "circle", "fault": "rect", "bytes": "rect", "formula": "line"}
MAX_DEPTH = 32
# A valid figure has 336 checked elements and no fault.
MAX_FOUND = 2_000
_ELEMENTS = frozenset({"circle", "line", "rect", "style", "text", "title"})
_ATTRIBUTES = frozenset(
    {"class", "cx", "cy", "fill", "fill-opacity", "height", "r", "rx", "stroke", "stroke-width"}
    | {"text-anchor", "version", "viewBox", "width", "x", "x1", "x2", "y", "y1", "y2"}
)
# Rules for `text` and for classes that no checked element has.
_STYLE = re.compile(
    rf"(?:(?:text|\.(?!(?:{'|'.join(TAGS)})\{{)[a-z]+)\{{[a-z0-9 #.,:;-]*\}})*", re.ASCII
)
_BYTES_FULL_SCALE = 29_184

Attributes = dict[str, str]


@dataclass(frozen=True)
class Element:
    """A checked element, and whether a `transform` stands on it or above it."""

    tag: str
    attributes: Attributes
    transformed: bool


@dataclass
class Drawing:
    """What the parser found: checked elements by class, and faults of the document."""

    elements: dict[str, list[Element]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


class FigureError(ValueError):
    """A document that is not XML, or has what no figure may have."""


def problems(
    data: bytes,
    records: Mapping[str, Mapping[str, Any]],
    payload_bytes: Mapping[tuple[int, int, int], int],
    formula: Mapping[tuple[int, int, int], int],
) -> Iterator[str]:
    """What is wrong with the figure; payload bytes are by (ranks, batch, sequence)."""
    try:
        drawing = parse(data)
    except FigureError as error:
        yield str(error)
        return
    yield from drawing.faults
    for kind, tag in TAGS.items():
        expected = wanted(kind, records, payload_bytes, formula)
        yield from _compare(kind, tag, drawing.elements.get(kind, []), expected)


def parse(data: bytes) -> Drawing:
    """Reads the document without declarations of any kind, so that nothing can expand or load.

    Raises:
        FigureError: not well-formed, a document type or processing instruction, or too deep.
    """
    drawing = Drawing()
    open_transforms: list[bool] = []
    style: list[str] = []
    open_tags: list[str] = []

    def start(name: str, attributes: Attributes) -> None:
        if len(open_transforms) == MAX_DEPTH:
            raise FigureError(f"elements nested deeper than {MAX_DEPTH}")
        namespace, _, tag = name.rpartition(" ")
        if not open_transforms:
            drawing.faults.extend(_root_faults(namespace, tag, attributes))
        elif namespace != NAMESPACE or tag not in _ELEMENTS:
            drawing.faults.append(f"element {shown(tag)} is not allowed")
        drawing.faults.extend(_attribute_faults(tag, attributes))
        if len(drawing.faults) + sum(map(len, drawing.elements.values())) > MAX_FOUND:
            raise FigureError(f"more than {MAX_FOUND} checked elements and faults")
        above = bool(open_transforms) and open_transforms[-1]
        open_transforms.append(above or "transform" in attributes)
        open_tags.append(tag)
        for kind in set(attributes.get("class", "").split()) & TAGS.keys():
            element = Element(tag, attributes, open_transforms[-1])
            drawing.elements.setdefault(kind, []).append(element)

    def end(_: str) -> None:
        open_transforms.pop()
        if open_tags.pop() == "style":
            if _STYLE.fullmatch("".join(style)) is None:
                drawing.faults.append("a style is not allowed")
            style.clear()

    def character_data(text: str) -> None:
        if "style" in open_tags:
            style.append(text)

    def refuse(*_: object) -> None:
        raise FigureError("a document type or processing instruction")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = character_data
    parser.StartDoctypeDeclHandler = refuse
    parser.ProcessingInstructionHandler = refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise FigureError(f"not usable as XML: {error}") from None
    return drawing


def _root_faults(namespace: str, tag: str, attributes: Attributes) -> Iterator[str]:
    if (namespace, tag) != (NAMESPACE, "svg"):
        yield f"the root is {shown(tag)}, not svg in the namespace of SVG"
    for key, wanted in (("version", "1.1"), ("width", WIDTH), ("height", HEIGHT)):
        if attributes.get(key) != wanted:
            yield f"the root's {key} is {shown(attributes.get(key))}, not {wanted}"
    if attributes.get("viewBox", _VIEW) != _VIEW:
        yield f"the root's viewBox is {shown(attributes['viewBox'])}, not {_VIEW}"


def _attribute_faults(tag: str, attributes: Attributes) -> Iterator[str]:
    """What could show another picture than the elements: hide, move or link; the first of them."""
    for key, value in attributes.items():
        if key not in _ATTRIBUTES and not key.startswith("data-"):
            yield f"attribute {shown(key)} of {shown(tag)} is not allowed"
            return
        if "(" in value:
            yield f"the {shown(key)} of {shown(tag)} is not allowed"
            return


def wanted(
    kind: str,
    records: Mapping[str, Mapping[str, Any]],
    payload_bytes: Mapping[tuple[int, int, int], int],
    formula: Mapping[tuple[int, int, int], int],
) -> list[Attributes]:
    if kind == "case":
        return [_circle(each) for each in records.values() if each["fault"] is None]
    if kind == "fault":
        return [_cell(each) for each in records.values() if each["fault"] is not None]
    if kind == "bytes":
        return [
            _shape_of(key, value) | {"y": _one(840 - _bar(value)), "height": _one(_bar(value))}
            for key, value in payload_bytes.items()
        ]
    return [
        _shape_of(key, value) | {"y1": _one(840 - _bar(value)), "y2": _one(840 - _bar(value))}
        for key, value in formula.items()
    ]


def _circle(record: Mapping[str, Any]) -> Attributes:
    orders = sorted(matrix.ORDERS)
    column = matrix.RANKS.index(record["ranks"]) * len(orders) + orders.index(record["sum_order"])
    column = column * len(matrix.SEQUENCES) + matrix.SEQUENCES.index(record["sequence"])
    point = matrix.BATCHES.index(record["batch"]) * len(matrix.SEEDS)
    point += matrix.SEEDS.index(record["seed"])
    value = min(max(float(record["max_abs_error"]), 1e-8), 1e-5)
    return {
        "data-case": record["case"],
        "data-value": record["max_abs_error"],
        "cx": _one(80 + 35 * column + 3 + 3.5 * point),
        "cy": _one(60 + 80 * (-5 - math.log10(value))),
    }


def _cell(record: Mapping[str, Any]) -> Attributes:
    fault, error = record["fault"], record["error"]
    row = list(matrix.FAULT_KINDS).index(fault["kind"])
    phase = matrix.PHASES.index(fault["phase"])
    return {
        "data-case": record["case"],
        "data-outcome": record["outcome"],
        "data-code": error["code"],
        "data-rank": str(error["rank"]),
        "x": _one(240 + 150 * phase + 34 * (record["seed"] - 1)),
        "y": _one(380 + 26 * row),
    }


def _shape_of(key: tuple[int, int, int], value: int) -> Attributes:
    ranks, batch, sequence = map(str, key)
    return {
        "data-ranks": ranks,
        "data-batch": batch,
        "data-sequence": sequence,
        "data-value": str(value),
    }


def _bar(value: int) -> float:
    return 180 * value / _BYTES_FULL_SCALE


def _one(value: float) -> str:
    return f"{value:.1f}"


def _identity(attributes: Attributes) -> tuple[str | None, ...]:
    keys = ("data-case", "data-ranks", "data-batch", "data-sequence")
    return tuple(attributes.get(key) for key in keys)


def _compare(kind: str, tag: str, got: list[Element], wanted: list[Attributes]) -> Iterator[str]:
    """Exactly one element for each wanted one, with these attributes among its own."""
    open_elements = {_identity(each): each for each in wanted}
    for element in got:
        name = shown(" ".join(each for each in _identity(element.attributes) if each), 80)
        want = open_elements.pop(_identity(element.attributes), None)
        if want is None:
            yield f"{kind} {name} stands for nothing, or for the second time"
            continue
        if element.tag != tag or element.attributes["class"] != kind or element.transformed:
            yield f"{kind} {name} is not a plain {tag} without transform"
        for key, value in want.items():
            if element.attributes.get(key) != value:
                yield f"{kind} {name}: {key} is {shown(element.attributes.get(key))}, not {value}"
    for left in open_elements:
        yield f"{kind} {' '.join(each for each in left if each)} is missing"
