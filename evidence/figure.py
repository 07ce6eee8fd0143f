"""figure.svg: errors, faults and bytes at a glance (docs/spec/evidence.md E10).

Text is written by hand, number by number, so that the same cases give the same bytes anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from evidence.matrix import (
    BATCHES,
    FAULT_CODES,
    FAULT_PHASES,
    RANKS,
    SEEDS,
    SEQUENCES,
    SUM_ORDERS,
)
from program.block import block_payload_bytes

Record = Mapping[str, Any]
Records = Mapping[tuple[Any, ...], Record]

WIDTH, HEIGHT = 960, 900
INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
# Colours that stay apart for colour-blind readers (Okabe and Ito's palette).
ORDER_COLOURS: Final = {"pairwise": "#0072b2", "rank": "#e69f00"}
OUTCOME_COLOURS: Final = {"protocol": "#d55e00", "contract": "#cc79a7", "deadline": "#56b4e9"}
BYTES_COLOUR, FORMULA_COLOUR = "#009e73", "#000000"
BYTES_FULL: Final = 29_184
ERROR_LOW, ERROR_HIGH = 1e-8, 1e-5


def _text(x: float, y: float, text: str, *, anchor: str = "start", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{text}</text>'


def _title(y: float, title: str, remark: str) -> Iterator[str]:
    yield _text(40, y, title, extra=' class="title"')
    yield _text(920, y, remark, anchor="end", extra=' class="remark"')


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="1"/>'
    )


def _columns() -> list[tuple[int, str, int]]:
    return [(r, order, t) for r in RANKS for order in SUM_ORDERS for t in SEQUENCES]


def error_y(value: float) -> float:
    """Logarithmic: 1e-5 at 60, 1e-8 at 300."""
    limited = min(max(value, ERROR_LOW), ERROR_HIGH)
    return 60 + 80 * (-5 - math.log10(limited))


def _error_axes() -> Iterator[str]:
    yield from _title(32, "Largest absolute error of each clean case", "against float64; log scale")
    for exponent in (-5, -6, -7, -8):
        y = error_y(10.0**exponent)
        yield _line(80, y, 920, y)
        yield _text(72, y + 4, f"1e{exponent}", anchor="end")
    yield _text(918, error_y(1e-6) - 4, "alarm", anchor="end", extra=' class="remark"')
    for column, (ranks, order, sequence) in enumerate(_columns()):
        x = 80 + 35 * column
        yield _text(x + 16, 314, f"T={sequence}", anchor="middle", extra=' class="small"')
        if column % 4 == 0:
            label = f"{ranks} rank{'s' if ranks > 1 else ''}, {order}"
            yield _text(x + 68, 330, label, anchor="middle")
            if column:
                yield _line(x, 56, x, 334)


def _error_marks(clean: Records) -> Iterator[str]:
    points = [(b, s) for b in BATCHES for s in SEEDS]
    for column, (ranks, order, sequence) in enumerate(_columns()):
        for index, (batch, seed) in enumerate(points):
            record = clean[ranks, batch, sequence, seed, order]
            value = record["max_abs_error"]
            x, y = 80 + 35 * column + 3 + 3.5 * index, error_y(float(value))
            yield (
                f'<circle class="case" data-case="{record["case"]}" data-value="{value}" '
                f'cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{ORDER_COLOURS[order]}" '
                f'fill-opacity="0.8"><title>{record["case"]}: {value}</title></circle>'
            )


def _faults(faults: Records) -> Iterator[str]:
    yield from _title(356, "Each fault: outcome, and where it was found", "number: faulty rank")
    for p, phase in enumerate(FAULT_PHASES):
        yield _text(240 + 150 * p + 65, 374, f"phase {phase}", anchor="middle")
    for k, kind in enumerate(FAULT_CODES):
        yield _text(230, 380 + 26 * k + 15, kind.replace("_", " "), anchor="end")
        for p, phase in enumerate(FAULT_PHASES):
            for seed in SEEDS:
                yield _fault_cell(faults[kind, phase, seed], 240 + 150 * p + 34 * (seed - 1), k)
    for index, (outcome, colour) in enumerate(OUTCOME_COLOURS.items()):
        y = 392 + 26 * index
        yield f'<rect x="710.0" y="{y:.1f}" width="14" height="14" rx="3" fill="{colour}"/>'
        yield _text(732, y + 12, outcome)
    yield _text(710, 484, "P partial, F fence, R result:", extra=' class="remark"')
    yield _text(710, 500, "the frame that was due", extra=' class="remark"')


def _due_frame(record: Record) -> str:
    if record["fault"]["phase"] == "result":
        return "R"
    return "F" if record["fault"]["kind"] == "cancellation_race" else "P"


def _fault_cell(record: Record, x: float, row: int) -> str:
    y = 380 + 26 * row
    error, outcome = record["error"], record["outcome"]
    return (
        f'<rect class="fault" data-case="{record["case"]}" data-outcome="{outcome}" '
        f'data-code="{error["code"]}" data-rank="{error["rank"]}" x="{x:.1f}" y="{y:.1f}" '
        f'width="30" height="22" rx="3" fill="{OUTCOME_COLOURS[outcome]}">'
        f"<title>{record['case']}: {error['code']} at rank {error['rank']}</title></rect>"
        f'<text class="cell" x="{x + 15:.1f}" y="{y + 15:.1f}" text-anchor="middle">'
        f"{_due_frame(record)}{error['rank']}</text>"
    )


def _bytes(clean: Records) -> Iterator[str]:
    yield from _title(632, "Payload bytes of a clean case", "bar: measured; line: formula")
    for value in (0, 10_000, 20_000, 30_000):
        y = 840 - 180 * value / BYTES_FULL
        yield _line(80, y, 920, y)
        yield _text(72, y + 4, f"{value // 1000} k", anchor="end")
    shapes = [(r, b, t) for r in RANKS for b in BATCHES for t in SEQUENCES]
    for column, (ranks, batch, sequence) in enumerate(shapes):
        x = 80 + 35 * column
        measured = clean[ranks, batch, sequence, SEEDS[0], SUM_ORDERS[0]]["payload_bytes"]
        formula = block_payload_bytes(ranks, batch, sequence)
        height, level = 180 * measured / BYTES_FULL, 840 - 180 * formula / BYTES_FULL
        names = f'data-ranks="{ranks}" data-batch="{batch}" data-sequence="{sequence}"'
        yield (
            f'<rect class="bytes" {names} data-value="{measured}" x="{x + 4:.1f}" '
            f'y="{840 - height:.1f}" width="26" height="{height:.1f}" fill="{BYTES_COLOUR}" '
            f'fill-opacity="0.75"/>'
        )
        yield (
            f'<line class="formula" {names} data-value="{formula}" x1="{x:.1f}" y1="{level:.1f}" '
            f'x2="{x + 34:.1f}" y2="{level:.1f}" stroke="{FORMULA_COLOUR}" stroke-width="2"/>'
        )
        yield _text(x + 17, 854, f"T={sequence}", anchor="middle", extra=' class="small"')
        if column % 4 == 0:
            label = f"{ranks} rank{'s' if ranks > 1 else ''}, batch {batch}"
            yield _text(x + 68, 872, label, anchor="middle")


_STYLE = (
    f"text{{font:12px sans-serif;fill:{INK}}}.title{{font-size:15px;font-weight:bold}}"
    f".remark{{fill:{FAINT}}}.small{{font-size:9px;fill:{FAINT}}}"
    ".cell{font-size:10px;fill:#ffffff;font-weight:bold}"
)


def figure(records: Sequence[Record]) -> str:
    """The whole figure; a function of the cases alone."""
    clean: Records = {
        (r["ranks"], r["batch"], r["sequence"], r["seed"], r["sum_order"]): r
        for r in records
        if r["fault"] is None
    }
    faults: Records = {
        (r["fault"]["kind"], r["fault"]["phase"], r["seed"]): r
        for r in records
        if r["fault"] is not None
    }
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" {size}>',
        f"<style>{_STYLE}</style>",
        f'<rect x="0" y="0" width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_error_axes(),
        *_error_marks(clean),
        *_faults(faults),
        *_bytes(clean),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
