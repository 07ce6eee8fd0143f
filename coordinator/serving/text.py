"""Token ids to text and back, also piece by piece: no character is ever told before it is whole.

Byte-level vocabularies only (Qwen's and the tiny model's): a token is a run of bytes, and the text
is the UTF-8 of all of them in their order. Special tokens are no text.
"""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Final

from coordinator.serving.chat_template import ChatTemplate
from coordinator.serving.tokenizer import TOKENIZER_FILE, TextTokenizer
from errors import ConfigError


def _byte_of_character() -> dict[str, int]:
    """Byte-level vocabularies spell each byte as one character: visible Latin-1 ones as themselves,
    the others, in ascending order, as the characters from U+0100 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    table = {chr(byte): byte for byte in visible}
    return table | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}


BYTE_OF_CHARACTER: Final = _byte_of_character()


class TextStream:
    """The text of tokens that come one by one. Bytes that are no UTF-8 become U+FFFD."""

    def __init__(self, text: ModelText) -> None:
        self._text = text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """The characters that the token completes."""
        return self._decoder.decode(self._text.visible_bytes(token_id))

    def flush(self) -> str:
        """The end: a character that was never completed becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)


class ModelText:
    """A checkpoint's tokenizer and chat template. Raises ConfigError for one it can't stream."""

    def __init__(self, tokenizer: TextTokenizer, chat: ChatTemplate) -> None:
        if not tokenizer.byte_level:
            rule = "must have a byte-level decoder: others can't be told piece by piece"
            raise ConfigError.single("tokenizer", TOKENIZER_FILE, rule)
        self.chat = chat
        self._tokenizer = tokenizer
        self._special = tokenizer.special_ids
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def load(cls, folder: Path) -> ModelText:
        """From a checkpoint's folder. Raises ConfigError."""
        return cls(TextTokenizer(folder), ChatTemplate.load(folder))

    def encode(self, text: str) -> list[int]:
        """Names of special tokens in the text become these tokens, as in the model's training."""
        return self._tokenizer.encode(text)

    def decode(self, token_ids: list[int]) -> str:
        """The text at once; equal to that of a stream, flush included."""
        return b"".join(map(self.visible_bytes, token_ids)).decode("utf-8", "replace")

    def stream(self) -> TextStream:
        return TextStream(self)

    def visible_bytes(self, token_id: int) -> bytes:
        """What the token adds to the text: nothing for a special or an unused one."""
        return b"" if token_id in self._special else self.token_bytes(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The token's own bytes, special or not; none for an id without a token."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = _bytes_of(self._tokenizer.piece(token_id) or "")
        return known

    def name(self, token_id: int) -> str:
        """How interfaces name a token: its text, or `bytes:\\xe2\\x80` where that is no UTF-8."""
        data = self.token_bytes(token_id)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _bytes_of(piece: str) -> bytes:
    """An added token may have characters outside the byte alphabet; then it is its own text."""
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in piece)
    except KeyError:
        return piece.encode("utf-8")
