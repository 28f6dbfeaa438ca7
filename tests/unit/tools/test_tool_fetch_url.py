"""The `fetch_url` tool with a real server on loopback and the resolver of the system."""

import asyncio
import gzip
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from orga.activities.adapters.tools import fetch_url
from orga.activities.adapters.tools.fetch_url import FetchUrl
from orga.activities.adapters.tools.guarded_http import system_addresses
from orga.activities.ports import Tool
from tests.support.tools.calls import failure, result

Answer = Callable[[str], bytes]


class Site:
    """Answers each request with the raw bytes in `pages` for its path, and records the requests."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(request)
            writer.write(self.pages.get(request.split()[1], http(b"", status="404 Not Found")))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


def http(body: bytes, kind: str = "text/plain", *, status: str = "200 OK", headers: Sequence[str] = ()) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Connection: close", *headers]
    lines += [f"Content-Type: {kind}"] if kind else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def to(target: str) -> bytes:
    return http(b"", status="302 Found", headers=[f"Location: {target}"])


@pytest.fixture(name="site")
async def a_site() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    async with server:
        yield site


@pytest.fixture(name="tool", scope="module")
def a_tool_that_may_reach_the_site() -> FetchUrl:
    return FetchUrl(allow_hosts=["127.0.0.1"])


def addresses(**names: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return names[host].split()

    return resolve


def body_of(text: str) -> str:
    """Return the text between the URL and the note on how to continue."""
    found = re.fullmatch(r"Content of \S+\n(.*?)(\n\[(?:cut|only) [^\n]*\])?", text, re.S)
    assert found is not None, text
    return found[1]


_NEVER_CONTACTED = ("AddressRefused", "InvalidUrl", "ConnectionFailed")
"""The tool refuses it, it is no URL, or the resolver of this machine does not know the spelling."""

LOCAL_HOSTS = [
    pytest.param("127.0.0.1", id="loopback"),
    pytest.param("127.1", id="short loopback"),
    pytest.param("0x7f.1", id="hexadecimal"),
    pytest.param("0177.0.0.1", id="octal"),
    pytest.param("2130706433", id="one number"),
    pytest.param("0", id="zero"),
    pytest.param("0.0.0.0", id="this machine"),
    pytest.param("localhost", id="name of loopback"),
    pytest.param("localhost.", id="with a final dot"),
    pytest.param("LOCALHOST", id="capitals"),
    pytest.param("[::1]", id="v6 loopback"),
    pytest.param("[::]", id="v6 this machine"),
    pytest.param("[::ffff:127.0.0.1]", id="mapped loopback"),
    pytest.param("[::ffff:10.0.0.1]", id="mapped private"),
    pytest.param("[64:ff9b::7f00:1]", id="NAT64 loopback"),
    pytest.param("[2002:7f00:1::]", id="6to4 loopback"),
    pytest.param("169.254.169.254", id="metadata"),
    pytest.param("100.64.0.1", id="carrier"),
    pytest.param("10.0.0.1", id="private"),
    pytest.param("①②⑦.0.0.1", id="circled digits"),
    pytest.param("127。0。0。1", id="ideographic dots"),
]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/public/../admin", id="a detour"),
        pytest.param("/public/..", id="at the end"),
        pytest.param("/public/./x", id="one dot"),
        pytest.param("/public/%2e%2E/admin", id="encoded dots"),
        pytest.param("/public/..%2fadmin", id="an encoded slash"),
        pytest.param("/public/..\\admin", id="a backslash"),
        pytest.param("/public/%5c..%5cadmin", id="encoded backslashes"),
        pytest.param("/public/..;a=b/admin", id="with a parameter"),
        pytest.param("/public/../admin?q=1#here", id="before a query"),
    ],
)
async def test_a_path_with_dot_segments_is_refused(site: Site, tool: Tool, path: str) -> None:
    """A policy may permit a URL by its beginning as written."""
    error = await failure(tool, url=site.url(path))
    assert (error.kind, "a path with . or .. is refused" in str(error)) == ("InvalidUrl", True)
    assert site.requests == []


@pytest.mark.parametrize("path", ["/a..b/.c/...", "/x?at=../y", "/x#../y", "/a%20b/..."])
async def test_dots_within_a_segment_are_sent_unchanged(site: Site, tool: Tool, path: str) -> None:
    asked = path.split("#", maxsplit=1)[0]
    site.pages[asked] = http(b"here")
    assert body_of(await result(tool, url=site.url(path))) == "here"


async def test_a_redirect_may_go_up(site: Site, tool: Tool) -> None:
    """The redirect comes from the server, and no policy has judged it."""
    site.pages |= {"/a/b": to("../c"), "/c": http(b"here")}
    assert body_of(await result(tool, url=site.url("/a/b"))) == "here"


@pytest.mark.parametrize("host", LOCAL_HOSTS)
async def test_a_local_address_is_never_contacted(site: Site, host: str) -> None:
    site.pages["/"] = http(b"secret")
    error = await failure(FetchUrl(), url=site.url("/", host))

    assert error.kind in _NEVER_CONTACTED
    assert site.requests == []


@pytest.mark.parametrize("host", LOCAL_HOSTS)
async def test_a_redirect_to_a_local_address_is_never_followed(site: Site, host: str) -> None:
    site.pages["/"] = to(site.url("/secret", host))
    site.pages["/secret"] = http(b"secret")
    tool = FetchUrl(allow_hosts=["start.example"], resolve=_starts_here_else_system)
    error = await failure(tool, url=site.url("/", "start.example"))

    assert error.kind in _NEVER_CONTACTED
    assert len(site.requests) == 1


async def _starts_here_else_system(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"] if host == "start.example" else await system_addresses(host, port)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param("127.0.0.1", id="loopback"),
        pytest.param("93.184.215.14 127.0.0.1", id="one public, one not"),
        pytest.param("::1", id="v6 loopback"),
        pytest.param("169.254.169.254", id="metadata"),
    ],
)
async def test_a_name_that_resolves_to_a_local_address_is_refused(site: Site, found: str) -> None:
    tool = FetchUrl(resolve=addresses(**{"rebind.example": found}))
    assert (await failure(tool, url=site.url("/", "rebind.example"))).kind == "AddressRefused"
    assert site.requests == []


async def test_the_connection_goes_to_the_checked_address(site: Site) -> None:
    """The name is resolved only once, so a different second answer has no effect."""
    site.pages["/"] = http(b"here")
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    tool = FetchUrl(allow_hosts=["name.that.does.not.exist.example"], resolve=resolve)
    assert body_of(await result(tool, url=site.url("/", "name.that.does.not.exist.example"))) == "here"
    assert asked == ["name.that.does.not.exist.example"]
    assert f"Host: name.that.does.not.exist.example:{site.port}".lower() in site.requests[0].lower()


async def test_an_allowed_port_of_a_host_allows_no_other(site: Site) -> None:
    site.pages["/"] = http(b"here")
    assert body_of(await result(FetchUrl(allow_hosts=[f"127.0.0.1:{site.port}"]), url=site.url("/"))) == "here"
    assert (await failure(FetchUrl(allow_hosts=["127.0.0.1:1"]), url=site.url("/"))).kind == "AddressRefused"


@pytest.mark.parametrize("port", [22, 25, 6, 465, 993])
async def test_ports_of_other_protocols_are_refused(port: int) -> None:
    tool = FetchUrl(resolve=addresses(**{"public.example": "93.184.215.14"}))
    assert "port" in str(await failure(tool, url=f"http://public.example:{port}/"))


async def test_proxies_in_the_environment_are_ignored(site: Site, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pages["/"] = http(b"direct")
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert body_of(await result(tool, url=site.url("/"))) == "direct"


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://127.0.0.1/",
        "//example.org/",
        "example.org",
        "http://",
        "",
        "javascript:alert(1)",
        "http://user:secret@example.org/",
        "http://user@example.org/",
        "http://[::1/",
    ],
    ids=repr,
)
async def test_only_plain_web_urls_are_fetched(url: str) -> None:
    error = await failure(FetchUrl(resolve=addresses()), url=url)
    assert error.kind == "InvalidUrl"
    assert "secret" not in str(error)
    assert not error.retryable


async def test_a_redirect_cannot_add_credentials_or_another_scheme(site: Site, tool: Tool) -> None:
    for target in (f"http://user:pw@127.0.0.1:{site.port}/x", "file:///etc/passwd"):
        site.pages["/"] = to(target)
        assert (await failure(tool, url=site.url("/"))).kind == "InvalidUrl"


async def test_at_most_five_redirects_are_followed(site: Site, tool: Tool) -> None:
    site.pages |= {f"/{n}": to(f"/{n - 1}") for n in range(1, 8)} | {"/0": http(b"arrived")}
    text = await result(tool, url=site.url("/5"))
    assert text.startswith(f"Content of {site.url('/0')}\n")
    assert body_of(text) == "arrived"
    assert (await failure(tool, url=site.url("/6"))).kind == "TooManyRedirects"


async def test_a_page_becomes_its_readable_text(site: Site, tool: Tool) -> None:
    html = "<title>A page</title><nav>menu</nav><h1>Head</h1><p>Text<script>x()</script></p><!-- no -->"
    site.pages["/"] = http(html.encode(), "text/html; charset=utf-8")
    assert body_of(await result(tool, url=site.url("/"))) == "Title: A page\n# Head\nText"


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        pytest.param("text/plain; charset=latin-1", b"caf\xe9", "café", id="charset of the header"),
        pytest.param("text/html", b'<meta charset="windows-1252"><p>\x80', "€", id="charset of the page"),
        pytest.param("text/html; charset=zip", b"<p>x", "x", id="a codec that is not a charset"),
        pytest.param("text/plain; charset=punycode", b"x", "x", id="a codec that is slow"),
        pytest.param("text/plain", b"\xff\x00a\x07b", "\ufffdab", id="broken bytes and control characters"),
        pytest.param("text/plain", b"\xef\xbb\xbfx", "x", id="byte order mark"),
        pytest.param("application/json", b'{"a": 1}', '{"a": 1}', id="JSON"),
        pytest.param("application/problem+json", b"{}", "{}", id="a kind of JSON"),
        pytest.param("application/atom+xml", b"<a/>", "<a/>", id="a kind of XML"),
        pytest.param("text/plain", b"", "(no text)", id="empty"),
    ],
)
async def test_readable_bodies_are_returned_as_text(
    site: Site, tool: Tool, kind: str, body: bytes, expected: str
) -> None:
    site.pages["/"] = http(body, kind)
    assert body_of(await result(tool, url=site.url("/"))) == expected


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream", "application/pdf", "", "text", "video/mp4"])
async def test_other_bodies_are_refused(site: Site, tool: Tool, kind: str) -> None:
    site.pages["/"] = http(b"x", kind)
    assert (await failure(tool, url=site.url("/"))).kind == "UnsupportedContent"


@pytest.mark.parametrize("host", ["xn--a", "xn--a.test", "xn--zzzzzzzz"])
async def test_a_host_that_cannot_be_decoded_is_an_invalid_url(site: Site, tool: Tool, host: str) -> None:
    error = await failure(tool, url=f"http://{host}/")
    assert (error.kind, error.retryable) == ("InvalidUrl", False)
    site.pages["/"] = http(b"", status="302 Found", headers=[f"Location: http://{host}/"])
    assert (await failure(tool, url=site.url("/"))).kind == "InvalidUrl"


@pytest.mark.parametrize(
    ("status", "retryable"),
    [("404 Not Found", False), ("403 Forbidden", False), ("429 Too Many", True), ("503 Busy", True)],
)
async def test_an_error_status_is_an_error(site: Site, tool: Tool, status: str, retryable: bool) -> None:
    site.pages["/"] = http(b"<p>no", status=status)
    error = await failure(tool, url=site.url("/"))
    assert (error.kind, error.retryable) == (f"Http{status[:3]}", retryable)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_bodies_are_read(site: Site, tool: Tool, encoding: str) -> None:
    packed = (gzip.compress if encoding == "gzip" else zlib.compress)(b"packed text")
    site.pages["/"] = http(packed, headers=[f"Content-Encoding: {encoding}"])
    assert body_of(await result(tool, url=site.url("/"))) == "packed text"


@pytest.mark.parametrize("behind", [b"", bytes(512), b"no member"], ids=["nothing", "padding", "text"])
async def test_all_members_of_a_compressed_body_are_read(site: Site, tool: Tool, behind: bytes) -> None:
    packed = gzip.compress(b"first, ") + gzip.compress(b"second") + behind
    site.pages["/"] = http(packed, headers=["Content-Encoding: gzip"])
    assert body_of(await result(tool, url=site.url("/"))) == "first, second"


async def test_a_truncated_gzip_member_is_an_error(site: Site, tool: Tool) -> None:
    packed = gzip.compress(b"first, ") + gzip.compress(b"second")[:5]
    site.pages["/"] = http(packed, headers=["Content-Encoding: gzip"])
    assert (await failure(tool, url=site.url("/"))).kind == "BadBody"


async def test_a_decompression_bomb_stops_at_the_limit(site: Site, tool: Tool) -> None:
    site.pages["/"] = http(gzip.compress(b"0" * 100_000_000, 6), headers=["Content-Encoding: gzip"])
    text = await result(tool, url=site.url("/"), offset=1_999_000)
    assert text.endswith("[only the first 2,000,000 bytes were fetched]")


@pytest.mark.parametrize(("encoding", "kind"), [("gzip", "BadBody"), ("br", "UnsupportedContent")])
async def test_a_body_that_cannot_be_unpacked_is_an_error(site: Site, tool: Tool, encoding: str, kind: str) -> None:
    site.pages["/"] = http(b"not packed", headers=[f"Content-Encoding: {encoding}"])
    assert (await failure(tool, url=site.url("/"))).kind == kind


async def test_a_truncated_compressed_body_is_an_error(site: Site, tool: Tool) -> None:
    whole = gzip.compress(b"".join(b"%d " % n for n in range(3_000)))
    site.pages["/"] = http(whole[: len(whole) // 2], headers=["Content-Encoding: gzip"])
    error = await failure(tool, url=site.url("/"))
    assert (error.kind, "incomplete" in str(error)) == ("BadBody", True)


async def test_an_empty_body_may_be_declared_as_compressed(site: Site, tool: Tool) -> None:
    site.pages["/"] = http(b"", headers=["Content-Encoding: gzip"])
    assert body_of(await result(tool, url=site.url("/"))) == "(no text)"


async def test_a_long_text_is_read_in_parts_without_gaps(site: Site, tool: Tool) -> None:
    whole = "".join(f"{n} äöü " for n in range(3_000))
    site.pages["/"] = http(whole.encode(), "text/plain; charset=utf-8")
    read, offset = "", 0
    while True:
        text = await result(tool, url=site.url("/"), offset=offset)
        assert len(text.encode()) < 16_500
        read += body_of(text)
        if not (more := re.search(r"call fetch_url with offset=(\d+) for more\]$", text)):
            break
        offset = int(more[1])
    assert read == whole


async def test_a_silent_server_times_out(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, unused_connections: Callable[[], Awaitable[int]]
) -> None:
    monkeypatch.setattr(fetch_url, "_DEADLINE_S", 0.3)
    error = await failure(tool, url=f"http://127.0.0.1:{await unused_connections()}/")
    assert (error.kind, error.retryable) == ("Timeout", True)


@pytest.fixture(name="unused_connections")
async def a_server_that_never_answers() -> AsyncIterator[Callable[[], Awaitable[int]]]:
    over = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)

    async def port() -> int:
        return server.sockets[0].getsockname()[1]

    async with server:
        yield port
        over.set()


async def test_a_refused_connection_is_retryable(tool: Tool) -> None:
    error = await failure(tool, url="http://127.0.0.1:1/")
    assert (error.kind, error.retryable) == ("ConnectionFailed", True)


async def test_a_page_that_is_too_complex_does_not_stop_the_worker(site: Site, tool: Tool) -> None:
    """Parsed in the worker, this page would hold the interpreter lock for more than twenty seconds."""
    site.pages["/"] = http(b"<div>" * 100_000, "text/html")
    assert (await failure(tool, url=site.url("/"))).kind == "PageTooComplex"
