"""A name that nobody knows, answered with the nearest one and all that there are."""

from collections.abc import Iterable

from rapidfuzz import fuzz, process

NEAR = 60.0
"""rapidfuzz score from which a known name is offered."""


def there_are(name: str, known: Iterable[str]) -> str:
    """Return `did you mean 'read_file'? there are: ...`."""
    names = sorted(known)
    near = process.extractOne(name, names, scorer=fuzz.ratio, score_cutoff=NEAR)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}there are: {', '.join(names) or 'none'}"
