"""Reads the body of a response in small decompressed pieces, so that no sender can fill the memory at once."""

import asyncio
import zlib
from collections.abc import AsyncGenerator

from orga.activities.adapters.http import DecodingError, Response

ACCEPTED_ENCODINGS = "gzip"
CHUNK_BYTES = 65_536
_GZIP_MAGIC = b"\x1f\x8b"
"""The first bytes of each member of a gzip body."""


class UnsupportedEncoding(DecodingError):
    """The body has an encoding that the request did not accept."""


async def decompressed_chunks(response: Response) -> AsyncGenerator[bytes]:
    """Yield at most `PIECE_BYTES` at a time. Between two pieces, other tasks can run.

    httpx would decompress a whole chunk at once, which a sender can make a thousand times larger.

    Raises:
        DecodingError: The body is damaged or cut, or has an encoding that the request did not accept.
    """
    if response.is_stream_consumed:  # the body is in memory already
        yield response.content
        return
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise UnsupportedEncoding(f"content encoding {encoding[:40]!r} is not supported")
    expander = _gzip_decompressor() if encoding not in ("identity", "") else None
    has_begun = False
    async for chunk in response.aiter_raw():
        rest = chunk
        has_begun = has_begun or bool(chunk)
        if expander is None:
            yield chunk
            await asyncio.sleep(0)
            continue
        while rest:
            if expander.eof:
                if not _begins_member(rest):
                    return
                expander = _gzip_decompressor()
            try:
                piece = expander.decompress(rest, CHUNK_BYTES)
            except zlib.error as error:
                raise DecodingError("its compressed body is damaged") from error
            rest = expander.unused_data if expander.eof else expander.unconsumed_tail
            yield piece
            await asyncio.sleep(0)
    if expander is not None and has_begun and not expander.eof:
        raise DecodingError("its compressed body is cut")


def _gzip_decompressor() -> "zlib._Decompress":
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32 more than the window size: gzip or zlib, as the header says


def _begins_member(rest: bytes) -> bool:
    """Return whether a gzip body continues with another member. Anything else after a member's end is padding."""
    return rest[:2] == _GZIP_MAGIC[: len(rest)]
