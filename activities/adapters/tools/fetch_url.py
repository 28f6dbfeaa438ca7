"""The `fetch_url` tool: fetches a page, decodes it, and extracts its text in a child process."""

import asyncio
import codecs
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import charset_normalizer
import webencodings
from pydantic import Field

from orga.activities.adapters.http import (
    ACCEPTED_ENCODINGS,
    TRANSIENT_STATUSES,
    URL,
    HTTPError,
    InvalidURL,
    Response,
    TimeoutException,
    has_dot_segments,
)
from orga.activities.adapters.process_streams import child_output
from orga.activities.adapters.tools import page_text
from orga.activities.adapters.tools.guarded_http import (
    PublicBackend,
    Resolve,
    bounded_body,
    final_response,
    guarded_client,
    system_addresses,
)
from orga.activities.adapters.tools.page_text import visible_text
from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import ToolOutput

_LABELS: Any = webencodings
"""The web's names of encodings (WHATWG), where `iso-8859-1` means windows-1252. The library has no types."""

_WIDER_ENCODINGS = {
    "shift_jis": "cp932",
    "gbk": "gb18030",
    "euc-kr": "cp949",
    "big5": "big5hkscs",
    "iso-8859-1": "cp1252",
    "iso8859_1": "cp1252",
}
"""Python's codec for names that mean a larger encoding on the web than in Python."""

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_MAX_GUESS_BYTES = 20_000
"""Bytes that are read to guess an encoding. More would take long."""

_WEB_CODECS = re.compile(
    r"utf_(?:8|16|32)\w*|iso8859_\d+|latin_1|cp\d+|koi8_[rtu]|mac_\w+|gb\w+|big5\w*"
    r"|euc_\w+|shift_jis\w*"
)


def decoded_text(body: bytes, charset: str | None) -> str:
    """Decode the text by its byte order mark, else by the web's name `charset`, else by a guess.

    A guess takes some hundredths of a second, so call this in a thread.
    """
    marked = next((name for mark, name in _BOMS if body.startswith(mark)), None)
    codec = marked or _known_encoding(charset or "") or _likely_encoding(body)
    return body.decode(codec, errors="replace").removeprefix("\ufeff")


def _known_encoding(label: str) -> str | None:
    """Return Python's codec for the web's or for Python's name of an encoding."""
    if label.isascii() and (found := _LABELS.lookup(label)):
        name: str = found.codec_info.name
        return _WIDER_ENCODINGS.get(found.name) or _WIDER_ENCODINGS.get(name) or name
    try:
        return _web_codec(codecs.lookup(label).name.replace("-", "_"))
    except (LookupError, ValueError):
        return None


def _web_codec(name: str) -> str | None:
    return _WIDER_ENCODINGS.get(name, name) if _WEB_CODECS.fullmatch(name) else None


def _likely_encoding(body: bytes) -> str:
    """Return UTF-8 if the bytes are valid UTF-8, which may be cut within a character. Otherwise guess the encoding."""
    if b"\0" in body:  # no likely encoding has a NUL, so the bytes are damaged, or are no text
        return "utf-8"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        best = charset_normalizer.from_bytes(body[:_MAX_GUESS_BYTES]).best()
        return (best and _web_codec(best.encoding)) or "cp1252"
    return "utf-8"


_READABLE_TYPES = re.compile(
    r"text/.+|application/(?:.+\+)?(?:json|xml)|application/(?:yaml|x-yaml|toml|x-ndjson|javascript)"
)
_HTML_TYPES = ("text/html", "application/xhtml+xml")
_LABEL = rb"\s*=\s*[\"']?\s*([a-zA-Z0-9_:.+-]{1,40})"
_OWN_CHARSET = re.compile(
    rb"<meta\b[^>]{0,200}?charset" + _LABEL + rb"|<\?xml[^>]{0,100}?encoding" + _LABEL, re.IGNORECASE
)
_MAX_FETCHED_BYTES = 16_000


@dataclass(frozen=True)
class FetchedPage:
    """The answer to a GET after all redirects, with its first bytes."""

    url: str
    media_type: str
    charset: str | None
    body: bytes
    is_cut: bool


async def title_and_text(fetched: FetchedPage) -> tuple[str, str]:
    """Return the title and the text that a reader would see. A child process parses HTML."""
    text = await asyncio.to_thread(_decoded_body, fetched)
    if fetched.media_type not in _HTML_TYPES:
        return "", visible_text(text)
    output = await child_output(page_text.__name__, text.encode(errors="replace"))
    if not output:
        raise ToolError(f"{fetched.url}: the page is too complex to read; try another", kind="PageTooComplex")
    title, text = json.loads(output)
    return title, text


def _rendered_page(fetched: FetchedPage, title: str, text: str, offset: int) -> str:
    shown = text[offset : offset + _MAX_FETCHED_BYTES].encode()[:_MAX_FETCHED_BYTES].decode(errors="ignore")
    end = offset + len(shown)
    lines = [f"Content of {fetched.url}"]
    if title and not offset:
        lines.append(f"Title: {title}")
    lines.append(shown or "(no text)")
    if end < len(text):
        lines.append(f"[cut at character {end} of {len(text)}; call fetch_url with offset={end} for more]")
    elif fetched.is_cut:
        lines.append(f"[only the first {len(fetched.body):,} bytes were fetched]")
    return "\n".join(lines)


def _decoded_body(fetched: FetchedPage) -> str:
    is_marked_up = fetched.media_type in _HTML_TYPES or fetched.media_type.endswith("xml")
    own = _OWN_CHARSET.search(fetched.body, 0, 4_096) if is_marked_up else None
    label = (own[1] or own[2]).decode() if own else None
    if label and label.lower().startswith("utf-16"):
        label = "utf-8"  # the label is wrong: in real UTF-16 the search would not have found it
    return decoded_text(fetched.body, fetched.charset or label)


_DEADLINE_S = 20.0
_MAX_BYTES = 2_000_000
_HEADERS = {
    "user-agent": "orga-fetch/0.1",
    "accept": "text/html, text/*, application/json, application/xml, application/xhtml+xml",
    "accept-encoding": ACCEPTED_ENCODINGS,
}


class _FetchParameters(Parameters):
    url: str = Field(max_length=4_000, description="Absolute http or https URL.")
    offset: int = Field(default=0, ge=0, description="Characters of the text to skip, to go on with a long one.")


class FetchUrl:
    def __init__(self, allow_hosts: Collection[str] = (), resolve: Resolve = system_addresses) -> None:
        """Prepare the tool. It may also fetch from `allow_hosts` (`name` or `name:port`) at private addresses."""
        self._backend = PublicBackend(allow_hosts, resolve)
        what = "Fetch a public web page or text file; a page is returned as its readable text."
        self.spec = _FetchParameters.tool_spec("fetch_url", "read_only", what)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return a part of the page's text. Fetching the page may take 20 seconds."""
        parameters = _FetchParameters.parse(arguments)
        fetched = await self._fetch(parameters.url)
        title, text = await title_and_text(fetched)
        return ToolOutput(content=_rendered_page(fetched, title, text, parameters.offset))

    async def _fetch(self, url: str) -> FetchedPage:
        if has_dot_segments(url):
            raise ToolError(f"{url}: a path with . or .. is refused; write the one it leads to", kind="InvalidUrl")
        try:
            async with (
                asyncio.timeout(_DEADLINE_S),
                guarded_client(self._backend) as client,
                final_response(
                    _checked_url(URL(url)),
                    lambda url: client.stream("GET", url, headers=_HEADERS),
                    lambda url, location: _checked_url(url.join(location)),
                ) as response,
            ):
                return await _read_body(response)
        except (TimeoutError, TimeoutException) as error:
            why = f"{url}: no full answer in time; try again later or another page"
            raise ToolError(why, kind="Timeout", retryable=True) from error
        except HTTPError as error:
            why = f"{url}: {str(error) or type(error).__name__}; check the host or try another page"
            raise ToolError(why, kind="ConnectionFailed", retryable=True) from error
        except (InvalidURL, UnicodeError) as error:  # a host such as `xn--a` fails only at the request
            raise ToolError(f"{url}: {error}; use an absolute http or https URL", kind="InvalidUrl") from error


def _checked_url(url: URL) -> URL:
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolError(f"{url}: only absolute http and https URLs can be fetched", kind="InvalidUrl")
    if url.userinfo:
        raise ToolError(f"{url.host}: credentials in a URL are refused; leave out user and password", kind="InvalidUrl")
    return url


async def _read_body(response: Response) -> FetchedPage:
    if not response.is_success:
        status = response.status_code
        why = f"{response.url} answered {status} {response.reason_phrase}; check the URL or try another page"
        raise ToolError(why, kind=f"Http{status}", retryable=status in TRANSIENT_STATUSES)
    media_type = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if not _READABLE_TYPES.fullmatch(media_type):
        why = f"{response.url}: its type, {media_type[:80] or 'unknown'}, cannot be read as text; try another page"
        raise ToolError(why, kind="UnsupportedContent")
    body, is_cut = await bounded_body(response, _MAX_BYTES)
    return FetchedPage(str(response.url), media_type, response.charset_encoding, body, is_cut)
