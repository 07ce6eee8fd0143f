"""The numbers of the wire, each with its reason. Normative text: docs/spec/frame.md."""

from __future__ import annotations

from struct import Struct
from typing import Final

# Four printable letters, so that a capture is recognised at a glance and a peer that speaks HTTP or
# TLS is refused at its first wrong byte.
MAGIC: Final = b"RKPF"
VERSION: Final = 1

# F2: magic, version, kind, flags, epoch, sequence, metadata bytes, payload bytes, checksum.
HEADER: Final = Struct("!4sBBHQQIII")
HEADER_BYTES: Final = 36

# The largest metadata is a step's plan; the plan's own bounds (program/plan.py) keep it below this.
METADATA_BYTES_MAX: Final = 65_536
# Bounds what one hostile header can make a reader set aside, and so the tokens of one step:
# 16,777,216 / (4 x hidden size).
PAYLOAD_BYTES_MAX: Final = 16_777_216

# F4. The only flag.
FLAG_FOLDED: Final = 1

# How much one read asks for. A whole exchange of the block fits, so a partial and its fence cost
# one system call; larger payloads are read straight into their own buffer instead.
READ_BYTES: Final = 65_536

# M1: integers stay exact in every language that reads numbers as binary64.
INTEGER_MAX: Final = 2**53 - 1
# M1: the deepest legal metadata is a plan (object, list of rows, row, list of pages).
NESTING_MAX: Final = 8
# M2.
STRING_CHARACTERS_MAX: Final = 256
# M3.
DIMENSIONS_MAX: Final = 4

# S13: the tape stores a rank in 16 bits.
RANK_MAX: Final = 65_535
