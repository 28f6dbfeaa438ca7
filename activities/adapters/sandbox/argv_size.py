"""How much a program is passed at most."""

from collections.abc import Iterable

MAX_ARGV_BYTES = 100_000


def is_too_much(argv: Iterable[str]) -> bool:
    """Return whether a program and its arguments are more than that together."""
    return sum(len(element.encode(errors="replace")) + 1 for element in argv) > MAX_ARGV_BYTES
