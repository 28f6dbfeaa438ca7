"""Checks pictures and PDFs from tools, starters and models, and replaces them by references to a blob store.

The bytes decide about the type, never a name or a claim. Every check is linear in the bytes. Nothing is decoded.
"""

import errno
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from orga.activities.ports import BlobStore, LoadedMedia
from orga.workflows.types.parts import (
    MAX_COUNTED_PAGES,
    MAX_MEDIA_NAME_CHARS,
    MediaPart,
    MediaType,
    Part,
    Parts,
    size_text,
    text_part,
)
from orga.workflows.types.text import one_line
from orga.workflows.types.tool_calls.tools import MAX_RESULT_MEDIA, ToolOutput

MAX_IMAGE_BYTES = 3_750_000
"""Bytes of one picture. As base64 they are 5 MB, the limit of the strictest provider."""

MAX_DOCUMENT_BYTES = 20_000_000
"""Bytes of one PDF. As base64 they fit into every provider's request."""

MAX_FRONTEND_MESSAGE_BYTES = 32_000_000
"""Bytes of a message of a front end. The largest document as base64 fits into it."""

MAX_SIDE = 8_000
"""Pixels. Providers refuse longer sides."""

MAX_SEGMENTS = 1_000
"""Segments and fill bytes that are read to find the size of a JPEG. A hostile file has millions of them."""


class UnusableMedia(ValueError):
    """The bytes are no picture or PDF that models read, or they exceed a limit. The text has reason and remedy."""


@dataclass(frozen=True)
class Media:
    """A picture (PNG, JPEG, GIF, WebP) or a PDF, to be returned by a tool or attached to a task."""

    data: bytes
    name: str = ""
    """A name for people and models, such as `chart.png`."""

    @classmethod
    def read(cls, path: str | Path) -> "Media":
        """Return the file's content under its name.

        Raises:
            OSError: The file cannot be read, or it is a folder, a device or a pipe.
        """
        path = Path(path)
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a pipe would block
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        with path.open("rb") as file:  # one byte over the limit is enough to refuse the file
            return cls(file.read(MAX_DOCUMENT_BYTES + 1), path.name)


def shown_name(name: str) -> str:
    """Return the name for an error, quoted and cut, because strangers choose names."""
    return repr(str(name)[:MAX_MEDIA_NAME_CHARS]) if name else "the content"


class _Facts(NamedTuple):
    media_type: MediaType
    width: int = 0
    height: int = 0


def loaded_media(media: Media, *, is_made: bool = False) -> LoadedMedia:
    """Return the part with its bytes. Raise UnusableMedia with the name, the limit and the remedy.

    `is_made`: True if a model made it. Then the limit is larger, because only media that models get must be small.
    """
    data, shown = media.data, shown_name(media.name)
    if not isinstance(data, bytes | bytearray):  # pyright: ignore[reportUnnecessaryIsInstance], callers may not check
        raise UnusableMedia(f"{shown}: is {type(data).__name__}, not bytes. Use orga.Media.read for a file")
    facts = _facts_of(data)
    if facts is None:
        raise UnusableMedia(f"{shown}: is no PNG, JPEG, GIF, WebP or PDF. Convert it to one of these")
    is_document = facts.media_type == "application/pdf"
    limit = MAX_DOCUMENT_BYTES if is_document or is_made else MAX_IMAGE_BYTES
    if len(data) > limit:
        # a document's size is unknown, because its file was read only up to the limit
        size = f"more than {size_text(limit)}" if is_document else size_text(len(data))
        remedy = "Split it" if is_document else "Scale it down"
        raise UnusableMedia(f"{shown}: has {size}, and the limit is {size_text(limit)}. {remedy}")
    if max(facts.width, facts.height) > MAX_SIDE:
        raise UnusableMedia(
            f"{shown}: has {facts.width}x{facts.height} pixels, and the limit of a side is {MAX_SIDE}. Scale it down"
        )
    return LoadedMedia(
        kind="document" if is_document else "image",
        media_type=facts.media_type,
        digest=digest_of(data),
        size=len(data),
        name=str(media.name),
        width=facts.width,
        height=facts.height,
        pages=_pages(data) if is_document else 0,
        data=data,
    )


def is_picture(head: bytes) -> bool:
    """Return whether a file that starts with `head` is a picture that models read."""
    facts = _facts_of(head)
    return facts is not None and facts.media_type != "application/pdf"


def digest_of(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def _facts_of(data: bytes) -> _Facts | None:
    """Return the type that the first bytes show, with the size in pixels if the header states it."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _Facts("image/png", int.from_bytes(data[16:20]), int.from_bytes(data[20:24]))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _Facts("image/gif", int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))
    if data.startswith(b"\xff\xd8\xff"):
        return _Facts("image/jpeg", *_jpeg_size(data))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _Facts("image/webp", *_webp_size(data))
    return _Facts("application/pdf") if data.startswith(b"%PDF-") else None


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Return width and height from the first frame header, or zeros. Each segment before it states its length."""
    at = 2
    for _ in range(MAX_SEGMENTS):
        if at + 9 > len(data) or data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        else:
            at += 2 + max(int.from_bytes(data[at + 2 : at + 4]), 2)
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


_PAGE = re.compile(rb"/Type\s?/Page(?![a-zA-Z])")


def _pages(data: bytes) -> int:
    """Return the number of pages that can be counted without decompressing the PDF, or 0."""
    found = 0
    for _ in _PAGE.finditer(data):
        found += 1
        if found == MAX_COUNTED_PAGES:
            break
    return found


async def keep_media(media: Media, store: BlobStore) -> MediaPart:
    """Keep a picture or a document, and return its reference. Raise UnusableMedia if that is impossible."""
    loaded = loaded_media(media)
    try:
        await store.put(loaded.data, loaded.media_type)
    except Exception as error:
        remedy = "Make room in the store, or repair it"
        raise UnusableMedia(f"{shown_name(media.name)}: cannot be kept: {store_problem(error)}. {remedy}") from error
    return loaded.reference()


def store_problem(error: Exception) -> str:
    """Return the reason on one line. A store of the application may raise any error, even one without a text."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return one_line(f"{type(error).__name__}: {error}".removesuffix(": "), 300)


async def with_stored_media(output: ToolOutput, store: BlobStore | None, *, has_value: bool = False) -> ToolOutput:
    """Return a tool's output with references to its pictures and documents, and a line of text for each.

    If one cannot be kept, there is only its line: the call must not fail, because the tool has had its effect. With
    `has_value` the last line of the text is a value, so the new lines come before the text.
    """
    if not output.media:
        return output
    references, lines = list[MediaPart](), list[str]()
    for part in output.media[:MAX_RESULT_MEDIA]:
        stored = await _stored_part(part, store)
        if isinstance(stored, str):
            lines.append(stored)
        else:
            lines.append(stored.line())
            references.append(stored)
    left_out = len(output.media) - MAX_RESULT_MEDIA
    if left_out > 0:
        lines.append(f"[{left_out} more left out: a result has at most {MAX_RESULT_MEDIA}]")
    texts = [*lines, output.content] if has_value else [output.content, *lines]
    content = "\n".join(filter(None, texts))
    return output.with_content(content).with_media(tuple(references))


async def with_stored_parts(parts: Parts, store: BlobStore | None, line: Callable[[MediaPart], str] | None) -> Parts:
    """Return a reply's parts with references to its pictures, each followed by the text that `line` returns.

    Pass None as `line` if the reply's text is data, so that no text is added.
    """
    result = list[Part]()
    for part in parts:
        if not isinstance(part, LoadedMedia):
            result.append(part)
            continue
        stored = await _stored_part(part, store)
        if isinstance(stored, str):
            result.append(text_part(stored))
        else:
            result.append(stored)
            if line is not None:
                result.append(text_part(line(stored)))
    return tuple(result)


async def _stored_part(part: MediaPart, store: BlobStore | None) -> MediaPart | str:
    """Return the reference, or a text with the reason why the picture or document cannot be kept."""
    if not isinstance(part, LoadedMedia):
        return part
    if store is None:
        return part.words("could not be kept: this worker has no store")
    try:
        await store.put(part.data, part.media_type)
    except Exception as error:  # an application's own store raises what it likes
        reason = error.strerror if isinstance(error, OSError) else None
        return part.words(f"could not be kept: {reason or type(error).__name__}")
    return part.reference()


def output_with_media(content: str, media: Iterable[Media]) -> ToolOutput:
    """Return a tool's output. A line of text replaces each picture or document that models cannot read."""
    parts, lines = list[MediaPart](), [content] if content else []
    for item in media:
        try:
            parts.append(loaded_media(item))
        except UnusableMedia as error:
            lines.append(f"[{error}]")
    output = ToolOutput(content="\n".join(lines))
    return output.with_media(tuple(parts)) if parts else output
