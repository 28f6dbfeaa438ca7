"""Applies the settings that people have saved for a task queue to the agents of a worker.

Settings never keep a run from starting. If they are absent, invalid, slow or unreachable, only the worker's
configuration counts.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client

from orga.activities.ports import Agents
from orga.client.config.run_time import RunTimeRules
from orga.client.config.sections import OrgaConfig
from orga.client.errors import InvalidSettings
from orga.client.runs.settings import RecordedSettings, read_settings
from orga.workflows.types.settings import CurrentSettings, SettingProblem
from orga.workflows.types.setup import PrepareRequest, Setup

FRESH_S = 2.0
"""Seconds for which the result of a lookup is used again, so that many starts cost one request."""

CHANGING_S = 10.0
"""Seconds after a check of new values. In this time no result is used again, because the values may get saved."""

LOOKUP_TIMEOUT = timedelta(seconds=1)

_log = logging.getLogger(__name__)


class SettingsLookup:
    """Reads the settings of task queues. Runs that start together share one request."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lookups: dict[str, tuple[float, asyncio.Task[RecordedSettings]]] = {}
        """The last lookup of each queue, and the time until which it counts."""
        self._changing_until: dict[str, float] = {}

    async def settings(self, queue: str) -> RecordedSettings:
        now = time.monotonic()
        fresh_until, task = self._lookups.get(queue, (0.0, None))
        is_changing = now < self._changing_until.get(queue, 0.0)
        is_fresh = now <= fresh_until and not is_changing
        if task is None or (task.done() and not is_fresh):
            task = asyncio.ensure_future(read_settings(self._client, queue, within=LOOKUP_TIMEOUT))
            self._lookups[queue] = (now + FRESH_S, task)
        return await asyncio.shield(task)

    def expect_change(self, queue: str) -> None:
        self._changing_until[queue] = time.monotonic() + CHANGING_S


class RunTimeAgents:
    """The agents of a configuration, with the settings of the run's queue applied."""

    def __init__(
        self, own: Agents, rules: RunTimeRules, build: Callable[[OrgaConfig], Agents], lookup: SettingsLookup
    ) -> None:
        """Take `own`, the agents without settings, and `build`, which returns the agents of a changed configuration."""
        self._own, self._rules, self._build, self._lookup = own, rules, build, lookup
        self._last_build: tuple[Mapping[str, Any], Agents | None] = ({}, own)
        """The last values, and the agents with these values. None if the values are invalid."""

    async def setup(self, request: PrepareRequest, *, is_goal: bool = False) -> Setup:
        """Return the setup of a run. It names the version of the settings, if there are any."""
        current = await self._current_settings()
        agents = None if current is None else self._agents_with(current)
        if current is None or agents is None:
            return await self._own.setup(request, is_goal=is_goal)
        return (await agents.setup(request, is_goal=is_goal)).with_settings_version(current.version)

    def check(self, queue: str, values: Mapping[str, Any]) -> tuple[SettingProblem, ...]:
        """Return the problems of values that somebody wants to save for a queue."""
        self._lookup.expect_change(queue)
        return self._rules.problems(values)

    async def _current_settings(self) -> CurrentSettings | None:
        if not activity.in_activity():
            return None
        recorded = await self._lookup.settings(activity.info().task_queue)
        if recorded.state in {"broken", "unreachable"}:
            _log.warning("settings at run time: %s; the worker's configuration counts alone", recorded.detail)
        return recorded.current

    def _agents_with(self, current: CurrentSettings) -> Agents | None:
        values, agents = self._last_build
        if values != current.values:
            try:
                agents = self._build(self._rules.effective(current.values))
            except (InvalidSettings, ValueError) as error:
                _log.warning(
                    "settings at run time: version %s is invalid (%s); the worker's configuration counts alone",
                    current.version,
                    error,
                )
                agents = None
            self._last_build = (current.values, agents)
        return agents
