"""An error in something that people wrote."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """An error and its remedy. `place` is a key, `file:line`, or a folder."""

    place: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; {self.remedy}"
