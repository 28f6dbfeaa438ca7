"""A run that was set back to the end of an earlier iteration: the argument of the signal `rewound`."""

from datetime import datetime

from pydantic import AwareDatetime

from workflows.types.record import Record

REWOUND = "rewound"
"""The signal that the first workflow task after a reset sees, behind all that the server delivered again."""


class Rewind(Record):
    """What the run is told."""

    to_iteration: int
    boundary_at: AwareDatetime
    """When that iteration had ended: the time from then until now does not count."""
    steer: str | None = None


class Rewound(Record):
    """When a run's clock was last set back, and the `stopped_s` that it had before."""

    at: datetime
    stopped_s: float
