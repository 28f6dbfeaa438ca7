"""Errors in files that people wrote, each with place and remedy, and the exception for policies with such errors."""

from collections.abc import Sequence
from dataclasses import dataclass

from orga.workflows.types.text import similar_name_hint


@dataclass(frozen=True)
class FileProblem:
    """An error and its remedy. `place` is a key, `file:line`, or a folder."""

    place: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; {self.remedy}"


def extra_remedy(extra: str) -> str:
    """Return how to install an extra. `orga` alone is another project on the package index."""
    return f"pip install '/path/to/orga[{extra}]' with the path of your clone or wheel (in the clone: make setup)"


MAX_PROBLEMS_SHOWN = 20
"""Problems in one message, because every waiting call repeats the message."""


class BrokenPolicies(ValueError):
    """A set of policies cannot be used. One broken policy makes all invalid, because that one may forbid a call."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        more = len(problems) - MAX_PROBLEMS_SHOWN
        lines = [*map(str, problems[:MAX_PROBLEMS_SHOWN]), *([f"and {more:,} more problems"] if more > 0 else [])]
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


def nearest_name_remedy(name: str, known: Sequence[str]) -> str:
    """Return the remedy for an unknown name."""
    return f"{similar_name_hint(name, known)}known: {', '.join(known)}"
