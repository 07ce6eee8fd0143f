"""Where a coordinator listens and a worker connects, as text and as fields."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from typing import Final

from errors import ConfigError

# sockaddr_un holds 108 bytes, the last one NUL.
UNIX_PATH_BYTES_MAX: Final = 107


_PORT: Final = re.compile("[0-9]{1,5}")
_PORT_MAX: Final = 65_535
_FORMS: Final = "must be HOST:PORT, tcp:HOST:PORT or unix:PATH, HOST numeric or localhost"


@dataclass(frozen=True)
class Address:
    """A numeric host and a port (0: any free one, to listen), or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine can reach it."""
        return self.path is not None or ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"


def parse_address(text: str, field: str = "connect") -> Address:
    """`HOST:PORT`, `tcp:HOST:PORT` or `unix:PATH`; ConfigError naming `field` otherwise.

    HOST is numeric or `localhost`: looking a name up could block past any deadline.
    """
    if text.startswith("unix:"):
        return Address(path=_demand_path(text, field))
    host, _, port = text.removeprefix("tcp:").rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError.single(field, text, _FORMS) from None
    if not _PORT.fullmatch(port) or int(port) > _PORT_MAX:
        raise ConfigError.single(field, text, f"the port must be from 0 to {_PORT_MAX}")
    return Address(host, int(port))


def _demand_path(text: str, field: str) -> str:
    path = text.removeprefix("unix:")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        size = 0
    if size == 0 or "\0" in path:
        raise ConfigError.single(field, ascii(text), "must name a path after unix:")
    if size > UNIX_PATH_BYTES_MAX:
        rule = f"the path has {size} bytes, a Unix socket allows {UNIX_PATH_BYTES_MAX}"
        raise ConfigError.single(field, text, rule)
    return path
