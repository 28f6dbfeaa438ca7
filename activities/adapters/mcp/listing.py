"""All tools that a server lists, page by page, within bounds."""

from mcp import ClientSession
from mcp_types import PaginatedRequestParams, Tool

MAX_TOOLS = 1_000
MAX_PAGES = 100
MAX_BYTES = 16_000_000
"""Of all pages: a page can be as large as one message."""


async def listed_tools(session: ClientSession) -> list[Tool]:
    """Return the tools in the server's order; what is over the bounds is not asked for."""
    tools: list[Tool] = []
    size, cursor = 0, None
    for _ in range(MAX_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += page.tools
        size, cursor = size + len(page.model_dump_json(exclude_unset=True)), page.next_cursor
        if not cursor or len(tools) >= MAX_TOOLS or size >= MAX_BYTES:
            break
    return tools[:MAX_TOOLS]
