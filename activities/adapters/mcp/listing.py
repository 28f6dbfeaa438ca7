"""All tools that a server lists, page by page, within bounds. A cursor that comes again ends the list."""

from mcp import ClientSession
from mcp_types import PaginatedRequestParams, Tool

from orga.activities.adapters.mcp.lenient import left_out_of

MAX_TOOLS = 1_000
MAX_PAGES = 100
MAX_BYTES = 16_000_000
"""Of all pages: a page can be as large as one message."""


async def listed_tools(session: ClientSession) -> tuple[list[Tool], dict[str, str]]:
    """Return the tools in the server's order, and why others are left out; what is over the bounds is not asked for."""
    tools: list[Tool] = []
    left_out: dict[str, str] = {}
    size, cursor, asked = 0, None, set[str | None]()
    while cursor not in asked and len(asked) < MAX_PAGES:
        asked.add(cursor)
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += page.tools
        left_out |= left_out_of(page)
        size, cursor = size + len(page.model_dump_json(exclude_unset=True)), page.next_cursor
        if not cursor or len(tools) >= MAX_TOOLS or size >= MAX_BYTES:
            break
    return tools[:MAX_TOOLS], left_out
