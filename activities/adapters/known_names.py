"""What is wrong with what people wrote; a name that nobody knows is answered with those that there are."""

from collections.abc import Iterable
from dataclasses import dataclass

from orga.workflows.types.text import close_to


@dataclass(frozen=True)
class Problem:
    """What is wrong, and how to mend it. `place` is a key, `file:line`, or a folder."""

    place: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; {self.remedy}"


def there_are(name: str, known: Iterable[str]) -> str:
    """Return `did you mean 'read_file'? there are: ...`."""
    names = sorted(known)
    return f"{close_to(name, names)}there are: {', '.join(names) or 'none'}"
