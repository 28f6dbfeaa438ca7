"""What is wrong with what people wrote; a name that nobody knows is answered with those that there are."""

from collections.abc import Iterable
from dataclasses import dataclass

from rapidfuzz import fuzz, process

NEAR = 60.0
"""rapidfuzz score from which a known name is offered."""


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
    near = process.extractOne(name, names, scorer=fuzz.ratio, score_cutoff=NEAR)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}there are: {', '.join(names) or 'none'}"
