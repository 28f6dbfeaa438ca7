"""What is wrong with a set of policies: where, what, and how to mend it."""

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz import process

NEAR = 60.0
"""rapidfuzz score above which a known name is offered in place of an unknown one."""


@dataclass(frozen=True)
class PolicyProblem:
    """One of them. `place` is `file:line`, or a folder."""

    place: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; {self.remedy}"


class BrokenPolicies(ValueError):
    """A set that cannot be used: one broken policy refuses them all, since it may be the one that forbids."""

    def __init__(self, problems: Sequence[PolicyProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def nearest(name: str, known: Sequence[str]) -> str:
    """Return the remedy for a name that is none of the known ones."""
    found = process.extractOne(name, known, score_cutoff=NEAR)
    hint = f"did you mean {found[0]!r}? " if found else ""
    return f"{hint}known: {', '.join(known)}"
