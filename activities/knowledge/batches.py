"""Work on many items in batches, so that transactions are short and memory stays bounded."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from orga.workflows.types.knowledge import StoredItem

T = TypeVar("T")

BATCH_ITEMS = 256
"""Items that are stored or forgotten in one batch."""


def batches(items: Iterable[T], size: int = BATCH_ITEMS) -> Iterator[list[T]]:
    """Yield the items in order, in batches that are not empty. Items are read when they are needed."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


PAGE_ITEMS = 200
"""Items that are in memory at the same time."""


async def paged_items(next_page: Callable[[str], Awaitable[list[StoredItem]]]) -> AsyncIterator[StoredItem]:
    """Yield the items of all pages. `next_page` returns the page after an id; it is empty at the end."""
    after = ""
    while page := await next_page(after):
        for item in page:
            yield item
        after = page[-1].id
