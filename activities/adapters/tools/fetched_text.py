"""A fetched body as text for a model."""

import asyncio
import re
from dataclasses import dataclass

from orga.activities.adapters.tools.charset import decoded
from orga.activities.adapters.tools.page_process import parsed_page
from orga.activities.adapters.tools.page_text import visible

MEDIA_TYPES = "text/html, text/*, application/json, application/xml, application/xhtml+xml"
_READABLE = re.compile(
    r"text/.+|application/(?:.+\+)?(?:json|xml)|application/(?:yaml|x-yaml|toml|x-ndjson|javascript)"
)
_HTML = ("text/html", "application/xhtml+xml")
_LABEL = rb"\s*=\s*[\"']?\s*([a-zA-Z0-9_:.+-]{1,40})"
_OWN_CHARSET = re.compile(
    rb"<meta\b[^>]{0,200}?charset" + _LABEL + rb"|<\?xml[^>]{0,100}?encoding" + _LABEL, re.IGNORECASE
)
_MAX_BYTES = 16_000


@dataclass(frozen=True)
class Fetched:
    """The answer to a GET: where it came from in the end, and its first bytes."""

    url: str
    media_type: str
    charset: str | None
    body: bytes
    is_cut: bool


def is_readable(media_type: str) -> bool:
    """Whether bodies of this type are text."""
    return _READABLE.fullmatch(media_type) is not None


async def title_and_text(fetched: Fetched) -> tuple[str, str]:
    """Return what a reader would see."""
    text = await asyncio.to_thread(_decoded, fetched)
    if fetched.media_type in _HTML:
        return await parsed_page(fetched.url, text)
    return "", visible(text)


def shown_text(fetched: Fetched, title: str, text: str, offset: int) -> str:
    """Return the text from `offset`, under where the redirects led and the page's title."""
    shown = text[offset : offset + _MAX_BYTES].encode()[:_MAX_BYTES].decode(errors="ignore")
    end = offset + len(shown)
    lines = [f"Content of {fetched.url}"]
    lines += [f"Title: {title}"] * bool(title and not offset) + [shown or "(no text)"]
    if end < len(text):
        lines.append(f"[cut at character {end} of {len(text)}; call fetch_url with offset={end} for more]")
    elif fetched.is_cut:
        lines.append(f"[only the first {len(fetched.body):,} bytes were fetched]")
    return "\n".join(lines)


def _decoded(fetched: Fetched) -> str:
    is_marked_up = fetched.media_type in _HTML or fetched.media_type.endswith("xml")
    own = _OWN_CHARSET.search(fetched.body, 0, 4_096) if is_marked_up else None
    label = (own[1] or own[2]).decode() if own else None
    if label and label.lower().startswith("utf-16"):
        label = "utf-8"  # it could not be read if it were true
    return decoded(fetched.body, fetched.charset or label)
