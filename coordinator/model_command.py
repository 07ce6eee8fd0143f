"""The model subcommands: options in, text out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TextIO

from coordinator.command_generate import Generated, generate
from coordinator.command_plan import plan, render_plan, render_plan_json
from coordinator.command_score import score
from coordinator.load_progress import load_progress
from coordinator.model_options import GenerateOptions, PlanOptions, ScoreOptions
from coordinator.model_run import LoadWatch, ModelBindings, unwatched
from coordinator.serving.tokenizer import TextTokenizer
from errors import ConfigError, TPError


def watch_for(terminal: TextIO, environment: Mapping[str, str]) -> LoadWatch:
    """Progress of the load where a person sees it; a terminal that can't move back sees nothing."""
    if not terminal.isatty() or environment.get("TERM", "") in ("", "dumb"):
        return unwatched
    return partial(load_progress, terminal)


def run_model_command(
    options: PlanOptions | ScoreOptions | GenerateOptions, bindings: ModelBindings, page: TextIO
) -> int:
    """Writes the result to `page`; returns the exit code. Raises TPError."""
    match options:
        case PlanOptions():
            planned = plan(options.manifest, bindings.machine)
            page.write(render_plan_json(planned) if options.json else render_plan(planned))
        case ScoreOptions():
            if options.out is not None:
                demand_writable(options.out)
            text = score(options, bindings).to_json() + "\n"
            if options.out is None:
                page.write(text)
            else:
                write_whole(options.out, text)
        case GenerateOptions():
            generated = generate(options, bindings, TextTokenizer)
            page.write(generated.to_json() + "\n" if options.json else _page(options, generated))
    return 0


def _page(options: GenerateOptions, generated: Generated) -> str:
    tokens = [token.token_id for token in generated.tokens]
    text = ",".join(map(str, tokens))
    if generated.text is not None:
        text = (options.text or "") + generated.text
    seconds = generated.elapsed_seconds
    return f"{text}\n\n{len(tokens)} tokens, {generated.outcome.value}, {seconds:.1f} s in total\n"


def demand_writable(path: Path) -> None:
    """Raises ConfigError for a result file that could not be written; known before the work."""
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError.single("--out", path, "must name a file in a folder that can be written")


def write_whole(path: Path, text: str) -> None:
    """Whole or not at all. Raises TPError `output.write`."""
    unfinished = path.with_name(path.name + ".partial")
    try:
        unfinished.write_text(text, encoding="ascii")
        unfinished.rename(path)
    except OSError as failure:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise TPError("output.write", f"can't write {path}: {failure.strerror}") from None
