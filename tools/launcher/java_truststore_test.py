"""The key store: its bytes are those of the format, read back field by field."""

from __future__ import annotations

import base64
import hashlib
import struct
from pathlib import Path

from tools.launcher import java_truststore

CERTIFICATES = [b"first certificate", b"second" * 40]


def pem(data: bytes) -> str:
    """One certificate as text, between other lines."""
    body = base64.encodebytes(data).decode("ascii")
    return f"# a comment\n-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """A text field at this offset, and the offset after it."""
    (size,) = struct.unpack_from(">H", data, at)
    return data[at + 2 : at + 2 + size].decode("utf-8"), at + 2 + size


def test_entries() -> None:
    store = java_truststore.key_store("".join(map(pem, CERTIFICATES)))
    assert struct.unpack_from(">III", store) == (0xFEEDFEED, 2, 2)
    at = 12
    for certificate in CERTIFICATES:
        assert struct.unpack_from(">I", store, at) == (2,)
        _, at = read_text(store, at + 4)
        kind, at = read_text(store, at + 8)
        (size,) = struct.unpack_from(">I", store, at)
        assert (kind, store[at + 4 : at + 4 + size]) == ("X.509", certificate)
        at += 4 + size
    assert len(store) - at == hashlib.sha1().digest_size


def test_digest_covers_everything_before_it(tmp_path: Path) -> None:
    source, target = tmp_path / "in.pem", tmp_path / "out.jks"
    source.write_text(pem(CERTIFICATES[0]), encoding="utf-8")
    assert java_truststore.main([str(source), str(target)]) == 0
    data = target.read_bytes()
    salted = "changeit".encode("utf-16-be") + b"Mighty Aphrodite" + data[:-20]
    assert hashlib.sha1(salted).digest() == data[-20:]
