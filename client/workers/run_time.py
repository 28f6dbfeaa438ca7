"""Applies the settings that people have saved for a task queue to the agents of a worker.

Settings never keep a run from starting. If they are absent, invalid, slow or unreachable, only the worker's
configuration counts.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

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


class _Lookup(NamedTuple):
    task: asyncio.Task[RecordedSettings]
    fresh_until: float
    """Monotonic time until which the result is used again."""


class SettingsLookup:
    """Reads the settings of task queues. Runs that start together share one request."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lookups: dict[str, _Lookup] = {}
        """The last lookup of each queue."""
        self._changing_until: dict[str, float] = {}

    async def settings(self, queue: str) -> RecordedSettings:
        lookup = self._lookups.get(queue)
        if lookup is None or not self._is_usable(lookup, queue):
            task = asyncio.ensure_future(read_settings(self._client, queue, within=LOOKUP_TIMEOUT))
            lookup = self._lookups[queue] = _Lookup(task, time.monotonic() + FRESH_S)
        return await asyncio.shield(lookup.task)

    def _is_usable(self, lookup: _Lookup, queue: str) -> bool:
        if not lookup.task.done():
            return True
        now = time.monotonic()
        is_changing = now < self._changing_until.get(queue, 0.0)
        return now <= lookup.fresh_until and not is_changing

    def expect_change(self, queue: str) -> None:
        self._changing_until[queue] = time.monotonic() + CHANGING_S


class _Build(NamedTuple):
    values: Mapping[str, Any]
    agents: Agents | None
    """The agents with these values, or None if the values are invalid."""


class RunTimeAgents:
    """The agents of a configuration, with the settings of the run's queue applied."""

    def __init__(
        self, own: Agents, rules: RunTimeRules, build: Callable[[OrgaConfig], Agents], lookup: SettingsLookup
    ) -> None:
        """Take `own`, the agents without settings, and `build`, which returns the agents of a changed configuration."""
        self._own, self._rules, self._build, self._lookup = own, rules, build, lookup
        self._last_build = _Build({}, own)

    async def setup(self, request: PrepareRequest, *, is_goal: bool = False) -> Setup:
        """Return the setup of a run. It names the version of the settings, if there are any."""
        current = await self._current_settings()
        if current is not None and (agents := self._agents_with(current)):
            setup = await agents.setup(request, is_goal=is_goal)
            return setup.with_settings_version(current.version)
        return await self._own.setup(request, is_goal=is_goal)

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
        """Return the agents with these settings, or None if the settings are invalid."""
        if self._last_build.values != current.values:
            agents: Agents | None = None
            try:
                agents = self._build(self._rules.effective(current.values))
            except (InvalidSettings, ValueError) as error:
                _log.warning(
                    "settings at run time: version %s is invalid (%s); the worker's configuration counts alone",
                    current.version,
                    error,
                )
            self._last_build = _Build(current.values, agents)
        return self._last_build.agents
