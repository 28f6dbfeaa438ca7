"""The body of a response, decompressed, never more of it in memory than a limit."""

import zlib
from collections.abc import Callable

from activities.adapters.http import Response
from activities.ports import ToolError

ACCEPTED_ENCODINGS = "gzip"


async def bounded_body(response: Response, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes and whether there were more.

    httpx would decompress a whole chunk at once, a thousandfold if its sender wishes.
    """
    expand = _expander(response)
    body = bytearray()
    async for chunk in response.aiter_raw(65_536):
        try:
            body += expand(chunk, limit + 1 - len(body))
        except zlib.error as error:
            raise ToolError(f"{response.url}: its compressed body is damaged", kind="BadBody") from error
        if len(body) > limit:
            break
    return bytes(body[:limit]), len(body) > limit


def _expander(response: Response) -> Callable[[bytes, int], bytes]:
    """Return a function from a chunk and the room left to what the chunk expands to."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return lambda chunk, room: chunk[:room]
    if encoding in ("gzip", "x-gzip", "deflate"):
        # 32 more than the window size: gzip or zlib, whichever the header says.
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress
    raise ToolError(f"{response.url}: content encoding {encoding[:40]!r} is not supported", kind="UnsupportedContent")
