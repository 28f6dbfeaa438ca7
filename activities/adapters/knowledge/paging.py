"""All items of a store, a page at a time."""

from collections.abc import AsyncIterator, Awaitable, Callable

from orga.workflows.types.knowledge import StoredItem

PAGE = 200
"""Items that are in memory at once."""


async def paged(next_page: Callable[[str], Awaitable[list[StoredItem]]]) -> AsyncIterator[StoredItem]:
    """Yield the items of each page; `next_page` reads the one behind an id, an empty one at the end."""
    after = ""
    while page := await next_page(after):
        for item in page:
            yield item
        after = page[-1].id
