"""The page's files over HTTP: types, policy, caching; nothing in them that the policy forbids."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.applications import Starlette

from coordinator.serving.page import FOLDER, HEADERS, POLICY, TYPES, page_files
from coordinator.serving.page import page_routes as routes
from errors import ConfigError

LINES_MAX: Final = 350
SCRIPTS: Final = sorted(FOLDER.glob("*.js"))


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(path: str, method: str = "GET", **headers: str) -> Answer:
    """One request to the page's routes alone."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": fields,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    asyncio.run(Starlette(routes=routes())(scope, receive, send))
    start = sent[0]
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    body = b"".join(part.get("body", b"") for part in sent[1:])
    return Answer(start["status"], told, body)


@pytest.mark.parametrize("path", sorted(page_files()))
def test_every_file_has_its_type_and_the_policy(path: str) -> None:
    file = page_files()[path]
    answer = ask(path)
    assert answer.status == 200
    assert answer.body == file.read_bytes()
    assert answer.headers["content-type"] == TYPES[file.suffix]
    for name, value in HEADERS.items():
        assert answer.headers[name.lower()] == value


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    rules = {name: rest for name, *rest in (part.split() for part in POLICY.split("; "))}
    assert rules["default-src"] == ["'none'"]
    sources = {source for name, rest in rules.items() if name.endswith("-src") for source in rest}
    assert sources == {"'none'", "'self'"}
    for name in ("base-uri", "form-action", "frame-ancestors"):
        assert rules[name] == ["'none'"]
    assert HEADERS["X-Content-Type-Options"] == "nosniff"


def test_head_and_revalidation() -> None:
    whole = ask("/")
    assert ask("/", "HEAD").status == 200
    assert ask("/", "HEAD").headers["content-length"] == str(len(whole.body))
    again = ask("/", if_none_match=whole.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert ask("/", if_none_match='"other"').status == 200


def test_other_paths_and_methods_are_refused() -> None:
    assert ask("/page/index.html").status == 404
    assert ask("/page/../page.py").status == 404
    assert ask("/", "POST").status == 405


def test_strange_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        routes(tmp_path)
    (tmp_path / "index.html").write_text("<!doctype html>")
    assert set(page_files(tmp_path)) == {"/"}
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ConfigError):
        routes(tmp_path)


class Markup(HTMLParser):
    """What the policy would forbid, and which files the page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.forbidden: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.forbidden += [f"{tag} {name}" for name in given if name.startswith("on")]
        if "style" in given or tag == "style" or (tag == "script" and "src" not in given):
            self.forbidden.append(tag)
        if tag in {"script", "link", "img"}:
            self.loaded.append(given.get("src") or given.get("href") or "")
        if given.get("id"):
            self.ids.append(str(given["id"]))


def markup(text: str) -> Markup:
    parsed = Markup()
    parsed.feed(text)
    return parsed


def test_the_markup_has_nothing_inline_and_loads_only_files_of_the_page() -> None:
    parsed = markup((FOLDER / "index.html").read_text("utf-8"))
    assert parsed.forbidden == []
    assert set(parsed.loaded) <= set(page_files())
    assert len(parsed.ids) == len(set(parsed.ids))


@pytest.mark.parametrize("planted", ['<p style="x">', "<script>x</script>", "<b onclick=x>"])
def test_inline_code_is_found(planted: str) -> None:
    assert markup(planted).forbidden != []


def test_scripts_name_elements_that_exist() -> None:
    ids = set(markup((FOLDER / "index.html").read_text("utf-8")).ids)
    for script in SCRIPTS:
        assert set(re.findall(r'byId\("([^"]+)"\)', script.read_text("utf-8"))) <= ids, script.name


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_small_and_import_files_of_the_page(script: Path) -> None:
    text = script.read_text("utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    for target in re.findall(r'from "([^"]+)"', text):
        assert f"/page/{target.removeprefix('./')}" in page_files()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
