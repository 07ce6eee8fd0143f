"""Bytes to frames, or to the one ProtocolError that ends the stream (docs/spec/frame.md F7 to F10).

Lengths are judged before anything is set aside for them, and how the transport cuts the bytes never
changes the outcome.
"""

from __future__ import annotations

from errors import MisuseError, ProtocolError
from wire.canonical import decode_canonical
from wire.checksum import crc32
from wire.frame import FLAGS_ALLOWED, KIND_OF, PAYLOAD_LIMITS, Buffer, Frame, Header
from wire.limits import HEADER, HEADER_BYTES, MAGIC, METADATA_BYTES_MAX, READ_BYTES, VERSION


class FrameReader:
    """Bytes to frames, by F7 to F10. errno: that with which the stream ended, if any.

    Call `receive_data` (or write into `space()` and call `received`) as bytes arrive, `receive_eof`
    at the end of the stream, and `next_frame` until it returns None. After a refusal the reader is
    dead: `next_frame` raises the same error for ever.
    """

    def __init__(self) -> None:
        self.header: Header | None = None
        self._buffer = bytearray()
        # The payload of a large frame, filled in place; then `_buffer` holds only the frame's head.
        self._payload: bytearray | None = None
        self._filled = 0
        self._ended = False
        self.errno: int | None = None
        self._failure: ProtocolError | None = None
        self._refused = b""

    def receive_data(self, data: Buffer) -> None:
        """Add bytes that arrived, cut anywhere; a dead reader keeps none (F9)."""
        if self._failure is not None:
            return
        if self._payload is None:
            self._buffer += data
            return
        view = memoryview(data).cast("B")
        taken = min(len(view), len(self._payload) - self._filled)
        self._payload[self._filled : self._filled + taken] = view[:taken]
        self._filled += taken
        self._buffer += view[taken:]

    def space(self) -> memoryview | None:
        """Where the rest of a large payload belongs, to be read into directly; None otherwise."""
        if self._payload is None or self._filled == len(self._payload):
            return None
        return memoryview(self._payload)[self._filled :]

    def received(self, count: int) -> None:
        """`count` bytes were written at the start of `space()`."""
        if self._payload is None or not 0 <= count <= len(self._payload) - self._filled:
            raise MisuseError(f"{count} bytes were not written into space()")
        self._filled += count

    def receive_eof(self, errno: int | None = None) -> None:
        """The stream has ended, with this error if any; what was received before still counts."""
        self._ended = True
        self.errno = errno

    @property
    def has_bytes(self) -> bool:
        """Whether something is buffered, or the stream has ended."""
        return bool(self._buffer) or self._ended

    @property
    def at_clean_end(self) -> bool:
        """The stream has ended at a frame boundary and every frame was taken."""
        return self._ended and not self._buffer and self._failure is None

    def raw(self) -> bytes:
        """The bytes of the refused frame (S13), or those that have arrived of the current one."""
        if self._failure is not None:
            return self._refused
        return self._arrived()

    def next_frame(self, expected: bytes | None = None) -> Frame | None:
        """The next frame, or None when more bytes are needed; ProtocolError by F7 and F8.

        `expected`: canonical metadata; a frame that carries exactly these bytes needs no parsing.
        """
        if self._failure is not None:
            raise self._failure
        header = self.header
        if header is None:
            header = self._take_header()
            if header is None:
                return None
        start = HEADER_BYTES + header.metadata_bytes
        if not self._body_arrived(header, start):
            if self._ended:
                raise self._truncated()
            return None
        buffer = self._buffer
        metadata = bytes(buffer[HEADER_BYTES:start])
        payload: bytes | memoryview
        if self._payload is None:
            end = start + header.payload_bytes
            payload = bytes(buffer[start:end])
        else:
            end = start
            payload = memoryview(self._payload).toreadonly()
        self._judge_body(header, metadata, payload, expected)
        del buffer[:end]
        self.header = None
        self._payload = None
        self._filled = 0
        return Frame(header, metadata, payload)

    def _take_header(self) -> Header | None:
        """F7 steps 1 to 5, before anything is set aside for the body."""
        buffer = self._buffer
        if len(buffer) < HEADER_BYTES:
            self._judge_magic()
            if self._ended:
                raise self._truncated() if buffer else self._closed()
            return None
        magic, version, number, *fields = HEADER.unpack_from(buffer)
        if magic != MAGIC:
            self._judge_magic()
        kind = KIND_OF.get(number)
        if version != VERSION or kind is None:
            raise self._refuse(_unknown(version, number), bytes(buffer[:HEADER_BYTES]))
        header = self.header = Header(kind, *fields)
        if (
            header.flags & ~FLAGS_ALLOWED[kind]
            or header.metadata_bytes > METADATA_BYTES_MAX
            or header.payload_bytes > PAYLOAD_LIMITS[kind]
        ):
            raise self._refuse(_out_of_bounds(header), bytes(buffer[:HEADER_BYTES]))
        return header

    def _judge_magic(self) -> None:
        """F7 step 1; the refused frame ends with its first wrong byte."""
        for at, (byte, agreed) in enumerate(zip(self._buffer, MAGIC, strict=False)):
            if byte != agreed:
                error = ProtocolError(
                    "magic", f"byte {at} is 0x{byte:02x}, a frame begins with {MAGIC!r}"
                )
                raise self._refuse(error, bytes(self._buffer[: at + 1]))

    def _body_arrived(self, header: Header, start: int) -> bool:
        buffer = self._buffer
        if self._payload is not None:
            return self._filled == len(self._payload)
        if len(buffer) >= start + header.payload_bytes:
            return True
        if header.payload_bytes > READ_BYTES and len(buffer) >= start:
            self._payload = bytearray(header.payload_bytes)
            self._filled = len(buffer) - start
            self._payload[: self._filled] = buffer[start:]
            del buffer[start:]
        return False

    def _judge_body(
        self, header: Header, metadata: bytes, payload: Buffer, expected: bytes | None
    ) -> None:
        """F7 steps 6 and 7."""
        checksum = crc32(payload, crc32(metadata))
        if checksum != header.checksum:
            error = ProtocolError(
                "checksum", f"announced 0x{header.checksum:08x}, computed 0x{checksum:08x}"
            )
            raise self._refuse(error, b"".join((header.to_bytes(), metadata, payload)))
        if metadata != expected:
            try:
                decode_canonical(metadata)
            except ProtocolError as error:
                raw = b"".join((header.to_bytes(), metadata, payload))
                raise self._refuse(error, raw) from None

    def _arrived(self) -> bytes:
        if self._payload is None:
            return bytes(self._buffer)
        return bytes(self._buffer) + bytes(memoryview(self._payload)[: self._filled])

    def _closed(self) -> ProtocolError:
        message = "the stream ended where a frame was due"
        error = ProtocolError("closed", message, errno=self.errno)
        return self._refuse(error, b"")

    def _truncated(self) -> ProtocolError:
        raw = self._arrived()
        message = f"the stream ended {len(raw)} bytes into a frame"
        error = ProtocolError("truncated", message, errno=self.errno)
        return self._refuse(error, raw)

    def _refuse(self, error: ProtocolError, raw: bytes) -> ProtocolError:
        """F9: remember the first refusal and let go of everything that was buffered."""
        self._failure = error
        self._refused = raw
        self._buffer = bytearray()
        self._payload = None
        return error


def _unknown(version: int, number: int) -> ProtocolError:
    """F7 steps 2 and 3."""
    if version != VERSION:
        return ProtocolError("version", f"the peer speaks {version}, this is {VERSION}")
    return ProtocolError("malformed", f"kind {number} does not exist")


def _out_of_bounds(header: Header) -> ProtocolError:
    """F7 steps 4 and 5: which of them the header breaks first."""
    name = header.kind.name
    if header.flags & ~FLAGS_ALLOWED[header.kind]:
        return ProtocolError("flags", f"flags 0x{header.flags:04x} are not allowed on {name}")
    if header.metadata_bytes > METADATA_BYTES_MAX:
        what, size, limit = "metadata", header.metadata_bytes, METADATA_BYTES_MAX
    else:
        what, size, limit = "payload", header.payload_bytes, PAYLOAD_LIMITS[header.kind]
    return ProtocolError("size", f"{name} announces {size} {what} bytes, at most {limit}")
