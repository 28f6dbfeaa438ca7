"""The `check_settings` activity: a worker checks settings that somebody wants to save for its task queue."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from temporalio import activity

from orga.workflows.types.names import CHECK_SETTINGS
from orga.workflows.types.settings import SettingProblem

SettingsCheck = Callable[[str, Mapping[str, Any]], Sequence[SettingProblem]]
"""Returns the problems of a set for a task queue."""


class SettingsActivities:
    def __init__(self, check: SettingsCheck | None) -> None:
        self._check = check

    @activity.defn(name=CHECK_SETTINGS)
    async def check_settings(self, values: dict[str, Any]) -> Sequence[SettingProblem]:
        """Return the problems of the set, each with its key. Without any, it may be saved."""
        if self._check is None:
            return [SettingProblem(where="values", detail="this worker's configuration cannot be changed at run time")]
        return self._check(activity.info().task_queue, values)
