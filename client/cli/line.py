"""A line of a run's story, as the screens take it."""

from dataclasses import dataclass
from typing import Literal

Tone = Literal["quiet", "plain", "call", "good", "bad", "person"]
"""`quiet` is for the whole timeline only; `person` is what somebody sent into the run, or is asked by it."""


@dataclass(frozen=True)
class Line:
    """One line; a screen writes what would end it as an escape."""

    text: str
    tone: Tone = "plain"
