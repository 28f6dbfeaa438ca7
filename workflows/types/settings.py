"""Settings of a task queue that people change at run time: the whole set in each version, and who saved it when."""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field

from orga.workflows.types.input import Name
from orga.workflows.types.record import CheckedInput, Record, replace_fields

SETTINGS_MEMO = "orga_settings"
"""The memo key of the current set. The server itself returns a memo, so reading it needs no other worker."""

_ID_PREFIX = "orga-settings:"

MAX_KEYS = 300
"""Keys of one set. A worker refuses an update whose argument has over 1,000 lists, objects and commas."""

MAX_SET_BYTES = 200_000
"""Bytes of JSON of one set. The history holds it twice for each version: in the update, and in the memo."""

MAX_VERSIONS = 50
MAX_VERSIONS_BYTES = 500_000
"""Bytes of JSON of all versions that are kept. They are one payload when the workflow continues as new."""

Values = dict[Annotated[str, Field(min_length=1, max_length=300)], Any]
"""A set: JSON values by key, such as `agents.default.config.max_iterations`."""


def settings_id(task_queue: str) -> str:
    return f"{_ID_PREFIX}{task_queue}"


class SettingsChange(CheckedInput):
    """The argument of the update `save`."""

    version: int = Field(ge=0)
    """The version on which the set is based. 0 if there was none."""
    values: Values
    """The whole set. A key that it lacks has its value from the worker's configuration."""
    by: Name
    """The person who saves it."""


class CurrentSettings(Record):
    """The memo of the workflow."""

    version: int = Field(ge=1)
    values: Values


class SettingsVersion(CurrentSettings):
    """One version. It is kept so that people can return to it."""

    by: str
    at: datetime
    changed: tuple[str, ...]
    """The keys whose values differ from the version before."""


FULL_EVENTS = 500
FULL_BYTES = 2_000_000


class SettingsState(Record):
    """The state of the workflow, which continues as new after `full_events` events or `full_bytes` bytes of history.

    The state records both limits, so that an old history replays after the constants have changed.
    """

    versions: tuple[SettingsVersion, ...] = ()
    full_events: int = Field(default=FULL_EVENTS, ge=20, le=FULL_EVENTS)
    full_bytes: int = Field(default=FULL_BYTES, ge=100_000, le=FULL_BYTES)

    @property
    def version(self) -> int:
        return self.versions[-1].version if self.versions else 0

    @property
    def values(self) -> dict[str, Any]:
        return self.versions[-1].values if self.versions else {}

    def with_versions(self, versions: tuple[SettingsVersion, ...]) -> Self:
        return replace_fields(self, {"versions": versions})


class SettingProblem(Record):
    """A reason why a set cannot be saved."""

    where: str
    detail: str
