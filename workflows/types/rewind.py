"""A run that was set back to the end of an earlier iteration: the argument of the signal `rewound`."""

from typing import Annotated

from pydantic import AwareDatetime, FailFast, Field

from workflows.types.record import Record

REWOUND = "rewound"
"""The signal that the first workflow task after a reset sees, behind all that the server delivered again."""


MAX_LINE_CHARS = 500
MAX_LINES = 50


class Rewind(Record):
    """What the run is told."""

    to_iteration: int
    boundary_at: AwareDatetime
    """When that iteration had ended: the time from then until now does not count."""
    steer: str | None = None
    left: Annotated[tuple[Annotated[str, Field(max_length=MAX_LINE_CHARS)], ...], FailFast()] = Field(
        default=(), max_length=MAX_LINES
    )
    """Irreversible calls that were carried out behind the boundary, a line each: nothing undoes them."""
