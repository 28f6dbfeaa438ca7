"""Numbers of things, in words: one thing is one thing."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return how many there are; the plural is the noun with an `s` unless it is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
