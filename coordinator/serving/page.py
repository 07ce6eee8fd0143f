"""The page at `/`: static files, read once, served under a policy that lets nothing else in.

The page has no build step and no outside assets. What it shows comes from the routes of the same
server: GET /v1/engine, GET /v1/engine/steps/{n}, POST /v1/completions, DELETE /v1/requests/{id}.
Its files hold no secret, so they need no API key; the page asks for the key when those routes do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from errors import ConfigError

FOLDER: Final = Path(__file__).parent / "page"
# A browser runs no module and applies no style sheet whose type is wrong, because of nosniff.
TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
    }
)
# Scripts, styles and data from this server alone, nothing inline, no frames around it; strings
# never become markup or code.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }
)


def page_routes(folder: Path = FOLDER) -> list[BaseRoute]:
    """GET and HEAD of `/` and of `/page/{file}` for every file of the folder.

    Raises ConfigError when a file is missing, or is of a kind that TYPES does not know.
    """
    return [_route(path, file) for path, file in page_files(folder).items()]


def page_files(folder: Path = FOLDER) -> dict[str, Path]:
    """The file behind each path. Raises ConfigError as `page_routes` does."""
    if not (folder / "index.html").is_file():
        raise ConfigError.single("page", folder.name, "must be a folder with an index.html")
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix not in TYPES:
            raise ConfigError.single("page", file.name, f"must end in one of {sorted(TYPES)}")
        files["/" if file.name == "index.html" else f"/page/{file.name}"] = file
    return files


def _route(path: str, file: Path) -> Route:
    body = file.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**HEADERS, "ETag": tag}
    media_type = TYPES[file.suffix]

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=media_type)

    # Starlette answers HEAD wherever GET is, and the server leaves the body out.
    return Route(path, answer, methods=["GET"], name=f"page {path}")
