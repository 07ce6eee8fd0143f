"""Writes a Java key store with the certificates that the machine trusts.

    java_truststore.py CERTIFICATES.pem STORE.jks

Bazel's downloader trusts Java's own store, and a machine without Java has none. The JKS format,
version 2 (all integers big-endian): magic, version, entry count, entries, SHA-1 digest over a
salted password and everything before it. An entry of kind 2 is a trusted certificate: alias,
creation time in ms, type, DER length, DER. Text is a 16-bit length and UTF-8.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import sys
from pathlib import Path

MAGIC = 0xFEEDFEED
VERSION = 2
TRUSTED_CERTIFICATE = 2
# Java's documented default. A store of public certificates has nothing to keep secret.
PASSWORD = "changeit"
SALT = b"Mighty Aphrodite"
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


def _text(value: str) -> bytes:
    data = value.encode("utf-8")
    return struct.pack(">H", len(data)) + data


def key_store(pem: str) -> bytes:
    """Converts PEM certificates to the bytes of a key store."""
    certificates = [base64.b64decode(body) for body in _CERTIFICATE.findall(pem)]
    store = struct.pack(">III", MAGIC, VERSION, len(certificates))
    for index, certificate in enumerate(certificates):
        store += struct.pack(">I", TRUSTED_CERTIFICATE) + _text(f"certificate{index}")
        store += struct.pack(">Q", 0) + _text("X.509")
        store += struct.pack(">I", len(certificate)) + certificate
    return store + hashlib.sha1(PASSWORD.encode("utf-16-be") + SALT + store).digest()


def main(argv: list[str]) -> int:
    """Reads argv[0] and writes argv[1]."""
    source, target = map(Path, argv)
    target.write_bytes(key_store(source.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
