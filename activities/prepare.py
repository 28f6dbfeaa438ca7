"""The activities before a run's first iteration: `prepare` returns its setup, `read_past` the past of a fork.

`check_settings` checks settings that somebody wants to save for the worker's task queue.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic_core import to_json
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from orga.activities.calls.activity import heartbeats
from orga.activities.models.conversations import Conversations
from orga.activities.ports import Agents, OtherPlace, PastSource
from orga.workflows.types.names import CHECK_SETTINGS, GOAL_WORKFLOW, READ_PAST
from orga.workflows.types.past import parse_fork, parse_goal_fork
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.settings import SettingProblem
from orga.workflows.types.setup import PrepareRequest, Setup
from orga.workflows.types.state import AgentState

MAX_SETUP_BYTES = 500_000
"""Bytes of JSON. Each segment of a run carries the setup, together with the task, the state and the conversation."""

MAX_PARTS_NAMED = 5
"""Parts that the error for a too large setup names with their sizes."""

OTHER_PLACE_DELAY = timedelta(seconds=1)
"""Delay before the next attempt, which a worker of the run's own workplace may take."""


class PrepareActivities:
    def __init__(self, agents: Agents, conversations: Conversations) -> None:
        self._agents = agents
        self._conversations = conversations

    @activity.defn(name="prepare")
    async def prepare(self, request: PrepareRequest) -> Setup:
        """Return the setup. A mistake in the starter's input is a final failure."""
        try:
            setup = await self._agents.setup(request, is_goal=_is_for_goal())
        except InvalidInput as error:
            raise _starter_error(str(error)) from None
        except OtherPlace as error:  # retried, because a worker of the run's own workplace may be running too
            raise ApplicationError(str(error), type="OtherPlace", next_retry_delay=OTHER_PLACE_DELAY) from None
        size = len(setup.model_dump_json(exclude_unset=True).encode())
        if size > MAX_SETUP_BYTES:
            raise _starter_error(_size_problem(setup, size))
        self._conversations.keep_setup(setup)
        return setup


def _is_for_goal() -> bool:
    return activity.info().workflow_type == GOAL_WORKFLOW


def _starter_error(text: str) -> ApplicationError:
    """Return a final error. The starter reads it, so the SDK need not log a traceback."""
    return ApplicationError(text, type="InvalidInput", non_retryable=True, category=ApplicationErrorCategory.BENIGN)


def _size_problem(setup: Setup, size: int) -> str:
    parts = setup.model_dump(mode="json", exclude_unset=True)
    largest = sorted(((len(to_json(value)), name) for name, value in parts.items()), reverse=True)[:MAX_PARTS_NAMED]
    sizes = ", ".join(f"{name} {part_size}" for part_size, name in largest)
    return (
        f"agent {setup.agent!r}: its setup has {size} bytes of JSON, over the limit of {MAX_SETUP_BYTES} "
        f"({sizes}); shorten it, or narrow the tools with tool_profile"
    )


class PastActivities:
    def __init__(self, pasts: PastSource) -> None:
        self._pasts = pasts

    @activity.defn(name=READ_PAST)
    async def read_past(self, values: dict[str, Any]) -> AgentState:
        """Return the past, bounded to the size of one payload. A mistake in the starter's input is a final failure."""
        try:
            fork_input = parse_goal_fork(values) if _is_for_goal() else parse_fork(values)
            async with heartbeats():
                return await self._pasts.shared_past(fork_input)
        except InvalidInput as error:
            raise _starter_error(str(error)) from None


SettingsCheck = Callable[[str, Mapping[str, Any]], Sequence[SettingProblem]]
"""Returns the problems of new settings for a task queue."""


class SettingsActivities:
    def __init__(self, check: SettingsCheck | None) -> None:
        self._check = check

    @activity.defn(name=CHECK_SETTINGS)
    async def check_settings(self, values: dict[str, Any]) -> Sequence[SettingProblem]:
        """Return the problems of the settings, each with its key. Without problems, they may be saved."""
        if self._check is None:
            return [SettingProblem(where="values", detail="this worker's configuration cannot be changed at run time")]
        return self._check(activity.info().task_queue, values)
