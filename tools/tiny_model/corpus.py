"""English prose from the documentation that CPython installs with itself (PSF licence version 2).

Two sources, both part of the standard library of the running interpreter: the language reference
in `pydoc_data.topics` and the docstrings of the library modules.  Only paragraphs that read as
prose are kept: no code, no tables, no signatures.
"""

import ast
import hashlib
import re
import sysconfig
from pathlib import Path
from pydoc_data import topics

MIN_CHARACTERS = 60
MIN_PROSE_SHARE = 0.93
# Trees with other licences, generated text or tests; none of them is documentation of the library.
SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "dist-packages", "encodings", "ensurepip", "idlelib", "lib2to3"}
    | {"pydoc_data", "site-packages", "test", "tests", "turtledemo"}
)
# The reference uses typographic marks; a small vocabulary has no room for two forms of each.
ASCII_MARKS = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'}
    | {"\u2013": "-", "\u2014": "-", "\u2026": "."}
)


def paragraphs(text: str) -> list[str]:
    """The blank-line separated paragraphs of `text`, each on one line with single spaces."""
    blocks = re.split(r"\n\s*\n", text.translate(ASCII_MARKS))
    return [" ".join(block.split()) for block in blocks]


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph is a sentence or more of ASCII English rather than code or a table."""
    if len(paragraph) < MIN_CHARACTERS or not paragraph.isascii() or ">>>" in paragraph:
        return False
    if not paragraph[0].isupper() or paragraph[-1] not in ".:":
        return False
    plain = sum(character.isalpha() or character in " ,.'" for character in paragraph)
    return plain >= MIN_PROSE_SHARE * len(paragraph)


def docstrings(path: Path) -> list[str]:
    """The docstrings of a module, its classes and its functions, in the order of the file."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return []  # a deliberate test input or another encoding: not documentation
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [text for text in found if text]


def library_files() -> list[Path]:
    """The standard library's Python files, sorted by their path below its root."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [
        path
        for path in root.rglob("*.py")
        if not SKIPPED_FOLDERS.intersection(path.relative_to(root).parts[:-1])
    ]
    return sorted(files, key=lambda path: path.relative_to(root).as_posix())


def documents() -> list[str]:
    """Every document (the prose of one topic or one docstring), without repeated paragraphs."""
    texts = [topics.topics[name] for name in sorted(topics.topics)]
    for path in library_files():
        texts.extend(docstrings(path))
    seen: set[str] = set()
    kept = []
    for text in texts:
        fresh = [p for p in dict.fromkeys(paragraphs(text)) if is_prose(p) and p not in seen]
        seen.update(fresh)
        if fresh:
            kept.append("\n".join(fresh))
    return kept


def digest(texts: list[str]) -> str:
    """SHA-256 over the documents, NUL-separated: what a training run was given."""
    return hashlib.sha256("\0".join(texts).encode("ascii")).hexdigest()
