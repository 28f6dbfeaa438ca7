"""The problems of a set of policies: place, error and remedy of each."""

from collections.abc import Sequence

from orga.activities.adapters.problem import Problem
from orga.workflows.types.text import similar_name_hint

MAX_PROBLEMS_SHOWN = 20
"""Problems in one message, because every waiting call repeats the message."""


class BrokenPolicies(ValueError):
    """A set of policies cannot be used. One broken policy makes all invalid, because it may be the one that forbids."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        more = len(problems) - MAX_PROBLEMS_SHOWN
        lines = [*map(str, problems[:MAX_PROBLEMS_SHOWN]), *([f"and {more:,} more problems"] if more > 0 else [])]
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


def nearest_name_remedy(name: str, known: Sequence[str]) -> str:
    """Return the remedy for an unknown name."""
    return f"{similar_name_hint(name, known)}known: {', '.join(known)}"
