"""What a run says when it is over: a page for a terminal, or one JSON object for a script. Pure."""

from __future__ import annotations

import json
import math
import textwrap
from typing import Final

from coordinator.summary import Failure, RunSummary, Traffic, WorkerSummary
from coordinator.terminal import WIDTH, Style, Tone, columns, count, printable
from errors import TPError

_LABEL_WIDTH: Final = 11
_LAST_WORDS_LINES: Final = 5


def render_report(summary: RunSummary, style: Style) -> str:
    """The page for a terminal, at most 100 columns wide except for a path that is longer."""
    blocks = [_heading(summary, style), _worker_table(summary, style), _facts(summary, style)]
    if summary.failure is not None:
        blocks.append(_failure(summary.failure, summary.workers, style))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def render_failure(summary: RunSummary) -> str:
    """What failed and what the workers said, as plain lines; nothing for a run that went well."""
    if summary.failure is None:
        return ""
    return "\n".join(_failure(summary.failure, summary.workers, Style())) + "\n"


def render_json(summary: RunSummary) -> str:
    """One line of JSON with a stable set of keys; what a failed run does not have is null."""
    manifest, oracle = summary.manifest, summary.oracle
    document = {
        "ok": summary.ok,
        "program": manifest.program,
        "ranks": manifest.ranks,
        "batch": manifest.batch,
        "sequence": manifest.sequence,
        "seed": manifest.seed,
        "sum_order": manifest.sum_order,
        "payload_bytes": summary.payload_bytes,
        "payload_bytes_expected": summary.payload_bytes_expected,
        "header_bytes": summary.header_bytes,
        "metadata_bytes": summary.metadata_bytes,
        "max_abs_error": None if oracle is None else _finite(oracle.max_abs),
        "relative_l2_error": None if oracle is None else _finite(oracle.relative_l2),
        "output_sha256": summary.output_sha256,
        "outputs_identical": summary.outputs_identical,
        "strangers": summary.strangers,
        "elapsed_seconds": round(summary.elapsed_seconds, 6),
        "out": summary.out_dir,
        "workers": [
            {
                "rank": worker.rank,
                "frames_sent": worker.sent.frames,
                "frames_received": worker.received.frames,
            }
            for worker in summary.workers
        ],
        "error": None if summary.failure is None else _error_object(summary.failure),
    }
    return json.dumps(document, allow_nan=False) + "\n"


def render_refusal_json(error: TPError) -> str:
    """The JSON object of a run that has no summary: refused, interrupted, or without its files."""
    document = {"ok": False, "workers": [], "error": _error_object(Failure.of(error))}
    return json.dumps(document) + "\n"


def _error_object(failure: Failure) -> dict[str, str | int | None]:
    return {
        "code": failure.code,
        "rank": failure.rank,
        "phase": failure.phase,
        "errno": failure.errno,
        "errno_name": failure.errno_name,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _heading(summary: RunSummary, style: Style) -> list[str]:
    manifest = summary.manifest
    verdict = style.paint("ok", Tone.GOOD) if summary.ok else style.paint("FAILED", Tone.BAD)
    what = (
        f"{manifest.program} on {manifest.ranks} {_plural(manifest.ranks, 'rank')}, batch "
        f"{manifest.batch}, sequence {manifest.sequence}, seed {manifest.seed}, "
        f"sum order {manifest.sum_order}"
    )
    return [f"{verdict}  {style.paint(what, Tone.HEADING)}"]


def _worker_table(summary: RunSummary, style: Style) -> list[str]:
    """Who connected, and what went over each rank's connection in each direction."""
    header = ("rank", "worker", "frames sent", "bytes sent", "frames received", "bytes received")
    rows = [(*header, "exit")]
    for worker in summary.workers:
        peer = "did not connect" if worker.peer is None else printable(worker.peer)
        status = "-" if worker.exit_code is None else str(worker.exit_code)
        rows.append((str(worker.rank), peer, *_counts(worker.sent, worker.received), status))
    if len(summary.workers) > 1:
        sent = _total([worker.sent for worker in summary.workers])
        received = _total([worker.received for worker in summary.workers])
        rows.append(("all", "", *_counts(sent, received), ""))
    lines = columns(rows, "><>>>>>")
    return [style.paint(lines[0], Tone.QUIET), *lines[1:]]


def _counts(sent: Traffic, received: Traffic) -> tuple[str, str, str, str]:
    return (
        count(sent.frames),
        count(sent.bytes),
        count(received.frames),
        count(received.bytes),
    )


def _total(parts: list[Traffic]) -> Traffic:
    return Traffic(sum(part.frames for part in parts), sum(part.bytes for part in parts))


def _facts(summary: RunSummary, style: Style) -> list[str]:
    facts = [("payload", _payload(summary, style))]
    other = f"headers {count(summary.header_bytes)}, metadata {count(summary.metadata_bytes)} bytes"
    facts.append(("framing", other))
    if summary.oracle is not None:
        worst, relative = summary.oracle.max_abs, summary.oracle.relative_l2
        error = f"{worst:.3e} largest absolute, {relative:.3e} relative L2, against the oracle"
        facts.append(("error", error))
    if summary.outputs_identical is not None:
        verdict = _yes(summary.outputs_identical, style)
        facts.append(("identity", f"outputs of all ranks byte-identical: {verdict}"))
    if summary.output_sha256 is not None:
        facts.append(("output", f"sha256 {summary.output_sha256}"))
    if summary.strangers:
        text = f"{summary.strangers} {_plural(summary.strangers, 'connection')} turned away"
        facts.append(("strangers", text))
    facts.append(("time", f"{summary.elapsed_seconds:.3f} s in total"))
    if summary.out_dir is not None and summary.files:
        facts.append(("files", f"{printable(summary.out_dir)}: {', '.join(summary.files)}"))
    return [_line(label, text, style) for label, text in facts]


def _payload(summary: RunSummary, style: Style) -> str:
    measured, expected = count(summary.payload_bytes), count(summary.payload_bytes_expected)
    if summary.payload_bytes == summary.payload_bytes_expected:
        return f"{measured} bytes, {style.paint('as the formula says', Tone.GOOD)}"
    if not summary.ok:
        return f"{measured} of {expected} bytes when the run stopped"
    return f"{measured} bytes, {style.paint(f'the formula says {expected}', Tone.BAD)}"


def _failure(failure: Failure, workers: tuple[WorkerSummary, ...], style: Style) -> list[str]:
    where = "" if failure.rank is None else f"rank {failure.rank}"
    if failure.phase is not None:
        where += f" in phase {failure.phase}"
    title = f"{failure.code}  {where}".rstrip()
    if failure.errno is not None:
        title += f"  {failure.errno_name}, errno {failure.errno}"
    lines = [style.paint(printable(title), Tone.BAD)]
    lines += _wrapped(printable(failure.sentence), "  ")
    for worker in workers:
        said = printable(worker.last_words).strip().splitlines()[-_LAST_WORDS_LINES:]
        if said:
            lines.append(f"rank {worker.rank} said last:")
            for line in said:
                lines += _wrapped(line, "  | ")
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _line(label: str, text: str, style: Style) -> str:
    return style.paint(f"{label:<{_LABEL_WIDTH}}", Tone.QUIET) + text


def _yes(value: bool, style: Style) -> str:
    return style.paint("yes", Tone.GOOD) if value else style.paint("no", Tone.BAD)


def _plural(number: int, noun: str) -> str:
    return noun if number == 1 else noun + "s"
