"""What is wrong with a set of policies: where, what, and how to mend it."""

from collections.abc import Sequence

from orga.activities.adapters.problem import Problem
from orga.workflows.types.text import similar_name_hint

MAX_PROBLEMS_SHOWN = 20
"""Problems in one message: every held call would repeat them all."""


class BrokenPolicies(ValueError):
    """A set that cannot be used: one broken policy refuses them all, since it may be the one that forbids."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        more = len(problems) - MAX_PROBLEMS_SHOWN
        lines = [*map(str, problems[:MAX_PROBLEMS_SHOWN]), *([f"and {more:,} more problems"] if more > 0 else [])]
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


def nearest_name_remedy(name: str, known: Sequence[str]) -> str:
    """Return the remedy for a name that is none of the known ones."""
    return f"{similar_name_hint(name, known)}known: {', '.join(known)}"
