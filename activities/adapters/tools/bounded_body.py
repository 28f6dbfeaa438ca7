"""The body of a response, decompressed, never more of it in memory than a limit."""

from contextlib import aclosing

from orga.activities.adapters.decompressed import UnsupportedEncoding, decompressed
from orga.activities.adapters.http import DecodingError, Response
from orga.activities.ports import ToolError


async def bounded_body(response: Response, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes and whether there were more."""
    body = bytearray()
    try:
        async with aclosing(decompressed(response)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > limit:
                    break
    except DecodingError as error:
        kind = "UnsupportedContent" if isinstance(error, UnsupportedEncoding) else "BadBody"
        raise ToolError(f"{response.url}: {error}", kind=kind) from error
    return bytes(body[:limit]), len(body) > limit
