"""The task queue of a run started by an application's client, as docs/embedding.md describes it."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import create_autospec

import pytest
from temporalio.client import Client

from orga import AgentHandle, GoalHandle, SessionHandle, create_schedule, start_agent, start_goal, start_session
from orga.errors import InvalidInput

STARTS: dict[str, Callable[..., Awaitable[Any]]] = {
    "start_agent": partial(start_agent, agent_input="Look."),
    "start_goal": partial(start_goal, goal="Know."),
    "start_session": start_session,
    "create_schedule": partial(create_schedule, schedule_id="daily", given={"task": "Look."}, every=timedelta(days=1)),
}


def queues(client: Any) -> list[str]:
    """Return the queues of all starts, in order."""
    schedules = [call.args[1].action.task_queue for call in client.create_schedule.await_args_list]
    return schedules or [call.kwargs["task_queue"] for call in client.start_workflow.await_args_list]


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
async def test_the_default_queue_is_used_unless_one_is_given(
    start: Callable[..., Awaitable[Any]],
) -> None:
    client = create_autospec(Client, instance=True)
    await start(client)
    await start(client, task_queue="desk")
    assert queues(client) == ["orga", "desk"]


async def _schedule(client: Client, given: Any) -> None:
    await create_schedule(client, "daily", given, every=timedelta(days=1))


@pytest.mark.parametrize(
    ("start", "given"),
    [
        pytest.param(start_agent, 7, id="a number as a task"),
        pytest.param(start_agent, None, id="no task"),
        pytest.param(start_agent, ["Look."], id="a list as a task"),
        pytest.param(partial(start_goal, pipeline="weekly"), 7, id="a number as a goal"),
        pytest.param(start_session, "Hello.", id="a message as the input of a session"),
        pytest.param(_schedule, 7, id="a number as the input of a schedule"),
    ],
)
async def test_an_input_that_is_no_object_is_refused(start: Callable[..., Awaitable[Any]], given: Any) -> None:
    client = create_autospec(Client, instance=True)
    with pytest.raises(InvalidInput, match=r"^input: give an object such as .*, not "):
        await start(client, given)


@pytest.mark.parametrize("handle", [AgentHandle, GoalHandle, SessionHandle])
def test_the_repr_of_a_handle_shows_its_run(handle: type[AgentHandle]) -> None:
    assert repr(handle(create_autospec(Client, instance=True), "night")) == f"{handle.__name__}(id='night')"
