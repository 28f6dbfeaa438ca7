"""What is wrong with a manifest."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flaw:
    """One of them; `key` is where in the file."""

    key: tuple[str, ...]
    problem: str
    remedy: str
