"""Messages by index: which are left out, masked or kept."""

from collections.abc import Iterable

from orga.workflows.types.messages import Message, masked

Ranges = tuple[tuple[int, int], ...]
"""Messages by index: `[start, stop)`, in order."""


def indexes(ranges: Ranges) -> frozenset[int]:
    """Return the indexes that lie in the ranges."""
    return frozenset(index for start, stop in ranges for index in range(start, stop))


def ranges_of(found: Iterable[int]) -> Ranges:
    """Return the fewest ranges that hold exactly these indexes."""
    ranges: list[tuple[int, int]] = []
    for index in sorted(found):
        if ranges and ranges[-1][1] == index:
            ranges[-1] = (ranges[-1][0], index + 1)
        else:
            ranges.append((index, index + 1))
    return tuple(ranges)


def length(ranges: Ranges) -> int:
    """Return how many messages the ranges hold."""
    return sum(stop - start for start, stop in ranges)


def within(messages: tuple[Message, ...], ranges: Ranges) -> tuple[Message, ...]:
    """Return the messages that lie in the ranges."""
    return tuple(message for start, stop in ranges for message in messages[start:stop])


def without(messages: tuple[Message, ...], drop: Ranges) -> tuple[Message, ...]:
    """Return the messages that lie in none of the ranges."""
    gone = indexes(drop)
    return tuple(m for index, m in enumerate(messages) if index not in gone) if drop else messages


def with_masks(messages: tuple[Message, ...], mask: Ranges) -> tuple[Message, ...]:
    """Return the messages, those in the ranges masked."""
    chosen = indexes(mask)
    return tuple(masked(m) if index in chosen else m for index, m in enumerate(messages)) if mask else messages
