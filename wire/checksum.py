"""The frame checksum (frame.md F5): CRC-32 as in zlib."""

from __future__ import annotations

from zlib import crc32

__all__ = ["crc32"]
