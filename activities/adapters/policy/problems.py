"""What is wrong with a set of policies: where, what, and how to mend it."""

from collections.abc import Sequence

from rapidfuzz import process

from orga.activities.adapters.known_names import Problem

NEAR = 60.0
"""rapidfuzz score above which a known name is offered in place of an unknown one."""


class BrokenPolicies(ValueError):
    """A set that cannot be used: one broken policy refuses them all, since it may be the one that forbids."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def nearest(name: str, known: Sequence[str]) -> str:
    """Return the remedy for a name that is none of the known ones."""
    found = process.extractOne(name, known, score_cutoff=NEAR)
    hint = f"did you mean {found[0]!r}? " if found else ""
    return f"{hint}known: {', '.join(known)}"
