"""Many things a part at a time, so that no transaction is long and memory stays bounded."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

BATCH = 256
"""Items that are stored or forgotten at once."""


def batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """Yield them in their order, none of the parts empty; each is read as it is needed."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
