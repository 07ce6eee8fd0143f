"""`figure.value`: the checked elements of figure.svg (docs/spec/evidence.md E10).

The figure that the records give is drawn again, and the elements of E10 in both are held against
each other; what else a figure shows is free, except for what could load or run something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, NoReturn
from xml.parsers import expat

from verifier.package.findings import shown

SVG: Final = "http://www.w3.org/2000/svg"
ROOT: Final = {"version": "1.1", "width": "960", "height": "900"}
DEPTH_MAX: Final = 32
# A valid figure has 336.
ELEMENTS_MAX: Final = 2_000
# By class: the element's name, what tells it from its kin, and its other checked attributes.
CHECKED: Final[dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "case": ("circle", ("data-case",), ("data-value", "cx", "cy")),
    "fault": ("rect", ("data-case",), ("data-outcome", "data-code", "data-rank", "x", "y")),
    "bytes": (
        "rect",
        ("data-ranks", "data-batch", "data-sequence"),
        ("data-value", "y", "height"),
    ),
    "formula": (
        "line",
        ("data-ranks", "data-batch", "data-sequence"),
        ("data-value", "y1", "y2"),
    ),
}
VIEW_BOX: Final = "0 0 960 900"
ELEMENTS: Final = frozenset({"circle", "line", "rect", "style", "text", "title"})
ATTRIBUTES: Final = frozenset(
    {"class", "cx", "cy", "fill", "fill-opacity", "height", "r", "rx", "stroke", "stroke-width"}
    | {"text-anchor", "version", "viewBox", "width", "x", "x1", "x2", "y", "y1", "y2"}
)
_RULE: Final = re.compile(r"(text|\.[a-z]+)\{[a-z0-9 #.,:;-]*\}", re.ASCII)


class FigureError(ValueError):
    """A document that is no XML, or that has what no figure may have."""


class Element(NamedTuple):
    """A checked element: its name, its attributes, whether a `transform` acts on it."""

    name: str
    attributes: Mapping[str, str]
    transformed: bool


Key = tuple[str, ...]


class _Reader:
    """Collects the checked elements of a document; raises FigureError for what is forbidden."""

    def __init__(self) -> None:
        self.elements: dict[Key, Element] = {}
        self._transforms: list[bool] = []
        self._names: list[str] = []
        self._style: list[str] = []

    def start(self, full_name: str, attributes: dict[str, str]) -> None:
        namespace, _, name = full_name.rpartition(" ")
        if len(self._transforms) == DEPTH_MAX:
            raise FigureError(f"elements are nested deeper than {DEPTH_MAX}")
        if not self._transforms:
            _demand_root(namespace, name, attributes)
        elif namespace != SVG or name not in ELEMENTS:
            raise FigureError(f"element {shown(name)} is not allowed")
        _demand_passive(name, attributes)
        self._names.append(name)
        above = bool(self._transforms) and self._transforms[-1]
        self._transforms.append(above or "transform" in attributes)
        for kind in CHECKED.keys() & set(attributes.get("class", "").split()):
            _, names, _ = CHECKED[kind]
            key = (kind, *(attributes.get(each, "") for each in names))
            if key in self.elements or len(self.elements) == ELEMENTS_MAX:
                raise FigureError(f"a second element for {shown(key)}")
            plain = name if namespace == SVG and attributes["class"] == kind else f"other {name}"
            self.elements[key] = Element(plain, attributes, self._transforms[-1])

    def end(self, full_name: str) -> None:
        self._transforms.pop()
        if self._names.pop() == "style":
            _demand_plain_style("".join(self._style))
            self._style.clear()

    def text(self, text: str) -> None:
        if "style" in self._names:
            self._style.append(text)

    def refuse(self, *_: object) -> NoReturn:
        raise FigureError("a document type, or a processing instruction")


def _demand_root(namespace: str, name: str, attributes: Mapping[str, str]) -> None:
    if (namespace, name) != (SVG, "svg"):
        raise FigureError(f"the root is {shown(name)}, must be svg in its namespace")
    for key, value in ROOT.items():
        if attributes.get(key) != value:
            raise FigureError(f"the root's {key} is {shown(attributes.get(key))}, must be {value}")
    if attributes.get("viewBox", VIEW_BOX) != VIEW_BOX:
        raise FigureError(f"the root's viewBox is not {VIEW_BOX}")


def _demand_passive(name: str, attributes: Mapping[str, str]) -> None:
    """Nothing that loads or runs something, hides it, or shows it elsewhere."""
    for key, value in attributes.items():
        if not (key in ATTRIBUTES or key.startswith("data-")) or "(" in value:
            raise FigureError(f"attribute {shown(key)} of {shown(name)} is not allowed")


def _demand_plain_style(style: str) -> None:
    """Only rules for `text` and for classes that no checked element has."""
    selectors = {match[1] for match in _RULE.finditer(style)}
    if _RULE.sub("", style) or selectors & {f".{kind}" for kind in CHECKED}:
        raise FigureError("a style is not allowed")


def checked_elements(data: bytes) -> dict[Key, Element]:
    """The elements of E10 in a figure, by class and identity. Raises FigureError."""
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.ProcessingInstructionHandler = reader.refuse
    try:
        parser.Parse(data, True)
    except FigureError:
        raise
    except (expat.ExpatError, LookupError, ValueError) as failure:
        raise FigureError(f"not XML: {failure}") from None
    return reader.elements


def figure_problems(data: bytes, wanted: bytes) -> Iterator[str]:
    """Where a figure's checked elements differ from those of `wanted`, a figure of our own."""
    ours = checked_elements(wanted)
    try:
        theirs = checked_elements(data)
    except FigureError as failure:
        yield str(failure)
        return
    for key in sorted(ours.keys() | theirs.keys()):
        what = " ".join(key)
        if key not in theirs or key not in ours:
            yield f"{shown(what)} {'is missing' if key in ours else 'stands for nothing'}"
            continue
        yield from _element_problems(what, key[0], theirs[key], ours[key])


def _element_problems(what: str, kind: str, got: Element, wanted: Element) -> Iterator[str]:
    name, _, attributes = CHECKED[kind]
    if got.name != name or got.transformed:
        yield f"{what} is not a plain {name} of that class alone, without transform"
    for key in attributes:
        value = got.attributes.get(key)
        if value != wanted.attributes[key]:
            yield f"{what}: {key} is {shown(value)}, must be {wanted.attributes[key]}"
