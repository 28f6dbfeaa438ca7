"""Serves the pages: one shell of HTML for all of them, and the static files that it needs.

The shell contains the first data of its page, so a page is complete without a second request. These data are answers of
the public interface to the page's visitor. The scripts of a page find them by the path of the request.
"""

import asyncio
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any
from urllib.parse import unquote

from minijinja import Environment, safe
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Message

from orga.client.console.doors import visitor_of
from orga.client.console.problems import Problem
from orga.client.console.routes import API, console_of, visible_run
from orga.client.console.rows import task_of
from orga.workflows.types.text import escaped_line

STATIC = Path(__file__).parent / "static"
FIRST_ANSWER_S = 2.0
"""Seconds to wait for the first data, while the browser shows the page's frame. Then the page asks for them itself."""
NAME_S = 0.25
"""Seconds that the page's frame waits for the name of its run."""

TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

_CUT = "\0"
"""Divides the rendered shell into parts, which are sent one after the other."""


@dataclass(frozen=True)
class ConsolePage:
    address: str
    module: str
    title: str
    first: Sequence[str] = ()
    """The requests whose answers the page needs first. `{query}` is the page's own query with its question mark."""
    in_navigation: bool = False
    styles: Sequence[str] = ()
    """Style sheets between `app.css` and the page's own."""


PAGES = (
    ConsolePage("/", "runs", "Runs", ("/runs{query}",), in_navigation=True),
    ConsolePage("/inbox", "inbox", "Inbox", ("/inbox",), in_navigation=True),
    ConsolePage("/start", "start", "Start", in_navigation=True),
    ConsolePage("/admin", "admin", "Admin", in_navigation=True),
    ConsolePage("/runs/{id}", "run", "Run", ("/runs/{id}", "/runs/{id}/timeline")),
    ConsolePage("/chat/{id}", "chat", "Chat", ("/runs/{id}", "/runs/{id}/timeline"), styles=("run.css",)),
    ConsolePage("/compare", "compare", "Compare", ("/compare{query}",), styles=("run.css",)),
)


@dataclass(frozen=True)
class _File:
    content: bytes
    media_type: str

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:20]

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.content, mtime=0)


_COMMENTS = re.compile(r"^[ \t]*(?:/\*(?:(?!\*/).)*\*/|//[^\n]*)$", re.DOTALL | re.MULTILINE)
"""Comments of a script that begin a line. A comment after code stays."""


def _served(path: Path) -> bytes:
    """Return the content of a file. A script loses its comments, a fifth of its size, but keeps its lines."""
    text = path.read_text()
    if path.suffix == ".js":
        text = _COMMENTS.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    return text.encode()


class _Files:
    """All static files, read once."""

    def __init__(self, folder: Path = STATIC) -> None:
        self.files = {
            path.relative_to(folder).as_posix(): _File(_served(path), TYPES[path.suffix])
            for path in sorted(folder.rglob("*"))
            if path.suffix in TYPES
        }
        digests = "".join(file.digest for file in self.files.values())
        self.version = hashlib.sha256(digests.encode()).hexdigest()[:12]
        """Part of each address, so a browser keeps a file until one of them changes."""

    def modules(self, entry: str) -> list[str]:
        """Return the modules that an entry module imports, also indirectly, so that the browser fetches all at once."""
        found: dict[str, None] = {}
        unread = [entry]
        while unread:
            importer = unread.pop()
            file = self.files.get(importer)
            named = re.findall(r'from "(\.[a-z_./]+\.js)"', file.content.decode()) if file else []
            imports = [normpath(join(dirname(importer), name)) for name in named]
            unread += [name for name in imports if name not in found]
            found |= dict.fromkeys(imports)
        return list(found)


def page_routes() -> Sequence[BaseRoute]:
    files = _Files()
    pages = [page for page in PAGES if f"{page.module}.js" in files.files]
    shell = _Shell(files, pages)
    return [
        *(Route(page.address, partial(shell.show, page), name=f"page-{page.module}") for page in pages),
        Route("/icon.svg", _icon, name="icon"),
        Route("/static/{version}/{name:path}", partial(_static, files), name="static"),
    ]


class _Shell:
    """The HTML of all pages."""

    def __init__(self, files: _Files, pages: Sequence[ConsolePage]) -> None:
        self._files = files
        self._navigation = [
            {"address": page.address, "page": page.module, "title": page.title} for page in pages if page.in_navigation
        ]
        self._templates = Environment(
            templates={"shell.html": (Path(__file__).parent / "shell.html").read_text()},
            auto_escape_callback=lambda _name: True,
        )

    async def show(self, page: ConsolePage, request: Request) -> Response:
        parts = self._parts(page, request)
        headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
        if not _takes_gzip(request):
            return StreamingResponse(parts, media_type="text/html", headers=headers)
        headers["Content-Encoding"] = "gzip"
        return StreamingResponse(_zipped(parts), media_type="text/html", headers=headers)

    async def _parts(self, page: ConsolePage, request: Request) -> AsyncGenerator[str]:
        head, _, _ = self._html(page, "")
        yield head  # the browser fetches the style sheets
        _, body, end = self._html(page, await _name_of_run(request) if page.module == "run" else "")
        yield body  # the browser shows it while the data are read
        yield await _first_answers(request, page) + end

    def _html(self, page: ConsolePage, name: str) -> list[str]:
        """Return the head, the body up to the data, and what follows them. `name` is that of the page's run."""
        styles = ("app.css", *page.styles, f"{page.module}.css")
        html = self._templates.render_template(
            "shell.html",
            page=page.module,
            title=page.title,
            name=name,
            navigation=self._navigation,
            static=f"/static/{self._files.version}",
            styles=[style for style in styles if style in self._files.files],
            modules=self._files.modules(f"{page.module}.js"),
            cut=safe(_CUT),
        )
        return html.split(_CUT)


async def _static(files: _Files, request: Request) -> Response:
    file = files.files.get(request.path_params["name"])
    if file is None:
        raise Problem(404, "there is no such file")
    is_newest = request.path_params["version"] == files.version
    return _file_response(request, file, "public, max-age=31536000, immutable" if is_newest else "no-cache")


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


async def _zipped(parts: AsyncGenerator[str]) -> AsyncGenerator[bytes]:
    """Compress a page so that the browser can show each part when it arrives."""
    packer = zlib.compressobj(wbits=31)
    async for part in parts:
        yield packer.compress(part.encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()


def _file_response(request: Request, file: _File, caching: str) -> Response:
    zipped = _takes_gzip(request)
    etag = f'"{file.digest}{"-gzip" if zipped else ""}"'
    headers = {"ETag": etag, "Cache-Control": caching, "Vary": "Accept-Encoding", "X-Content-Type-Options": "nosniff"}
    if etag in [given.strip() for given in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return Response(file.compressed if zipped else file.content, media_type=file.media_type, headers=headers)


async def _icon(request: Request) -> Response:
    """Return the icon of the tab. It has a mark if something waits in the inbox."""
    is_waiting = bool(request.query_params.get("waiting"))
    mark = '<circle cx="15" cy="5" r="5" fill="#c2410c"/>' if is_waiting else ""
    content = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 20"><path d="M10 2a8 8 0 1 1-7.4 5" fill="none"'
        f' stroke="#0f766e" stroke-width="2.5"/><circle cx="10" cy="10" r="3.2" fill="#0f766e"/>{mark}</svg>'
    )
    return _file_response(request, _File(content.encode(), TYPES[".svg"]), "max-age=86400")


async def _name_of_run(request: Request) -> str:
    """Return the task of the run that the page is about, or "" if it is not known at once."""
    try:
        async with asyncio.timeout(NAME_S):
            console = console_of(request)
            run = await visible_run(console.client, visitor_of(request), unquote(request.path_params["id"]))
            return escaped_line(await task_of(console, run))
    except Exception:
        return ""  # the page asks again, and shows the problem


async def _first_answers(request: Request, page: ConsolePage) -> str:
    """Return a JSON object of paths and answers. It is safe within a script element."""
    query = f"?{request.url.query}" if request.url.query else ""
    paths = ["/me", *(path.format(query=query, **request.path_params) for path in page.first)]
    answers = await asyncio.gather(*(_answer(request, path) for path in paths))
    found = (f"{json.dumps(path)}:{body}" for path, body in zip(paths, answers, strict=True) if body)
    text = "{" + ",".join(found) + "}"
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")  # JSON has these only in strings
    return text


async def _answer(request: Request, path: str) -> str | None:
    """Ask the interface within this process. Return None if it refuses or takes too long. Then the page asks again."""
    path, _, query = path.partition("?")
    kept = ("type", "http_version", "scheme", "server", "client", "headers", "app", "state", "extensions")
    scope: dict[str, Any] = {key: request.scope[key] for key in kept if key in request.scope} | {
        "method": "GET",
        "path": API + path,
        "raw_path": (API + path).encode(),
        "root_path": "",
        "query_string": query.encode(),
    }
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    try:
        async with asyncio.timeout(FIRST_ANSWER_S):
            await request.app.router(scope, receive, send)
    except Exception:
        return None  # the page asks again, and shows that answer
    body = b"".join(message.get("body", b"") for message in sent)
    return body.decode() if any(message.get("status") == 200 for message in sent) else None
