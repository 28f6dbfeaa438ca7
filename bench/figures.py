"""Figures and their limits, as a table for people and as JSON."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One line: the measured values of both sides, and the value that is compared with a limit."""

    measure: str
    what: str
    unit: str
    ours: float
    floor: float | None = None
    value: float | None = None
    """The value that is compared with the limit. None means `ours`."""
    limit: float | None = None

    @property
    def is_met(self) -> bool:
        """True if there is no limit, or the value is within it."""
        return self.limit is None or self.compared <= self.limit

    @property
    def compared(self) -> float:
        return self.ours if self.value is None else self.value

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.is_met}


def ratio_of(measure: str, what: str, unit: str, ours: float, floor: float, limit: float | None = None) -> Figure:
    """Return a figure whose limit applies to ours / floor."""
    return Figure(measure, what, unit, ours, floor, ours / floor, limit)


def table(figures: Iterable[Figure]) -> str:
    lines = [f"   {'':<50}{'ours':>12}{'floor':>12}{'ratio':>9}{'limit':>8}"]
    for figure in figures:
        floor = "" if figure.floor is None else _number(figure.floor)
        ratio = "" if figure.value is None else f"{figure.value:.3f}"
        limit = "" if figure.limit is None else f"{figure.limit:g}"
        verdict = "" if figure.limit is None else "  met" if figure.is_met else "  NOT MET"
        what = (
            f"({figure.measure}) {figure.what}, {figure.unit}" if figure.unit else f"({figure.measure}) {figure.what}"
        )
        lines.append(f"{what:<53}{_number(figure.ours):>12}{floor:>12}{ratio:>9}{limit:>8}{verdict}")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) or value >= 10_000 else f"{value:,.2f}"
