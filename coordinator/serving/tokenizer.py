"""A checkpoint's tokenizer.json, read with the `tokenizers` library."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tokenizers import Tokenizer, decoders

from errors import ConfigError

TOKENIZER_FILE: Final = "tokenizer.json"
# The largest published one has 20 MB.
TOKENIZER_BYTES_MAX: Final = 64 << 20


class TextTokenizer:
    """Text to token ids and back. Raises ConfigError for a folder without a usable tokenizer."""

    def __init__(self, folder: Path) -> None:
        path = folder / TOKENIZER_FILE
        if path.exists() and not path.is_file():  # a pipe would keep whoever opens it waiting
            raise ConfigError.single("tokenizer", path, "must be a file")
        try:
            size = path.stat().st_size
            data = path.read_bytes() if size <= TOKENIZER_BYTES_MAX else None
        except OSError as failure:
            rule = f"can't be read: {failure.strerror}; --prompt-tokens needs no tokenizer"
            raise ConfigError.single("tokenizer", path, rule) from None
        if data is None:
            rule = f"must have at most {TOKENIZER_BYTES_MAX} bytes"
            raise ConfigError.single("tokenizer", path, rule)
        try:
            self._tokenizer = Tokenizer.from_buffer(data)
        # The library raises bare Exception for a file it can't read.
        except Exception as failure:
            rule = f"is no tokenizer file: {failure}"
            raise ConfigError.single("tokenizer", path, rule) from None

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without special tokens added. Other threads run meanwhile."""
        # The library's `encode` keeps the interpreter's lock, for seconds where the text is long:
        # no step, no stream and no health check would get on. Its methods for batches let go of it.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return list(encoding.ids)

    def decode(self, token_ids: list[int]) -> str:
        """The text of the ids, special tokens left out."""
        return str(self._tokenizer.decode(token_ids))

    def piece(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it; None for an id without one."""
        piece = self._tokenizer.id_to_token(token_id)
        return None if piece is None else str(piece)

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that are no text."""
        added = self._tokenizer.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)

    @property
    def byte_level(self) -> bool:
        """Whether a token is a run of bytes, spelled in the byte-level alphabet."""
        return isinstance(self._tokenizer.decoder, decoders.ByteLevel)
