"""All tools that a server lists, page by page, within bounds."""

from mcp import ClientSession
from mcp_types import PaginatedRequestParams, Tool

MAX_TOOLS = 1_000
MAX_PAGES = 100


async def listed_tools(session: ClientSession) -> list[Tool]:
    """Return the tools in the server's order; what is over the bounds is not asked for."""
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or len(tools) >= MAX_TOOLS:
            break
    return tools[:MAX_TOOLS]
