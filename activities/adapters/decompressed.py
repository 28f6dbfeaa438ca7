"""Decompresses the body of a response in small pieces, so that no sender can fill the memory."""

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
    """Yield the body in pieces. A decompressed piece has at most `CHUNK_BYTES`. Other tasks can run between two pieces.

    httpx would decompress a whole chunk at once, which a sender can make a thousand times larger.

    Raises:
        DecodingError: The body is damaged or incomplete, or has an encoding that the request did not accept.
    """
    if response.is_stream_consumed:  # the body is in memory already
        yield response.content
        return
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise UnsupportedEncoding(f"content encoding {encoding[:40]!r} is not supported")
    decompressor = _gzip_decompressor() if encoding not in ("identity", "") else None
    has_data = False
    async for chunk in response.aiter_raw():
        rest = chunk
        has_data = has_data or bool(chunk)
        if decompressor is None:
            yield chunk
            await asyncio.sleep(0)
            continue
        while rest:
            if decompressor.eof:
                if not _begins_member(rest):
                    return
                decompressor = _gzip_decompressor()
            try:
                piece = decompressor.decompress(rest, CHUNK_BYTES)
            except zlib.error as error:
                raise DecodingError("its compressed body is damaged") from error
            rest = decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail
            yield piece
            await asyncio.sleep(0)
    if decompressor is not None and has_data and not decompressor.eof:
        raise DecodingError("its compressed body is incomplete")


def _gzip_decompressor() -> "zlib._Decompress":
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # adding 32 detects gzip or zlib by the header


def _begins_member(rest: bytes) -> bool:
    """Return whether a gzip body continues with another member. Anything else after a member's end is padding."""
    return rest[:2] == _GZIP_MAGIC[: len(rest)]
