"""How the parts of one message follow each other: blocks, text, calls, where they do not stand in just this order."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

BLOCK, CALL, TEXT = "block", "call", "text:"
"""The parts: an opaque block, a call, and `text:N`, so many characters of the text."""

T = TypeVar("T")


def in_order(order: Sequence[str], blocks: Iterable[T], text: str, calls: Iterable[T]) -> Iterator[T | str]:
    """Yield the parts in order. What the order does not name comes where it stands without one."""
    left: dict[str, Iterator[T]] = {BLOCK: iter(blocks), CALL: iter(calls)}
    if BLOCK not in order:
        yield from left[BLOCK]
    for part in order:
        if part in left:
            yield from _next(left[part])
        elif said := text[: _chars(part)]:
            text = text[len(said) :]
            yield said
    yield from left[BLOCK]
    if text:
        yield text
    yield from left[CALL]


def order_of(parts: Iterable[tuple[Literal["block", "call", "text"], int]]) -> tuple[str, ...]:
    """Return the order of these parts, each with the characters that it has; empty where it is the usual one."""
    order = [f"{TEXT}{chars}" if kind == "text" else kind for kind, chars in parts if kind != "text" or chars]
    ranks = [0 if part == BLOCK else 2 if part == CALL else 1 for part in order]
    is_usual = ranks == sorted(ranks) and ranks.count(1) <= 1
    return () if is_usual or BLOCK not in order else tuple(order)


def _next(parts: Iterator[T]) -> Iterator[T]:
    for part in parts:
        yield part
        return


def _chars(part: str) -> int:
    count = part.removeprefix(TEXT)
    return int(count) if count.isascii() and count.isdecimal() and len(count) < 10 else 0
