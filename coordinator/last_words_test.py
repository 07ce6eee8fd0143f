"""What is kept of a worker's standard error."""

from __future__ import annotations

import os

from coordinator.last_words import BYTES_MAX, LastWords


def test_nothing_was_said() -> None:
    words = LastWords()
    assert words.text() == ""
    words.close()


def test_the_end_of_much_text_is_kept() -> None:
    """Nobody reads while it is written, so writing must not wait for a reader."""
    words = LastWords()
    line = b"x" * 1023 + b"\n"
    for _ in range(4096):
        assert os.write(words.fileno(), line) == len(line)
    os.write(words.fileno(), b"the last line\n")
    text = words.text()
    assert text.endswith("\nthe last line")
    assert len(text) <= BYTES_MAX
    words.close()


def test_bytes_that_are_no_text_do_no_harm() -> None:
    """Also where the limit cuts a character in two."""
    words = LastWords()
    os.write(words.fileno(), b"\xff\xfe" + "\u20ac".encode() * BYTES_MAX)
    assert words.text().endswith("\u20ac")
    words.close()


def test_closing_twice_is_allowed() -> None:
    words = LastWords()
    os.write(words.fileno(), b"before")
    words.close()
    words.close()
    assert words.text() == ""
