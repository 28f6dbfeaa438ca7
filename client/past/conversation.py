"""The conversation of a run from its history: what a worker would answer, without a worker."""

from contextlib import aclosing
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from orga.client.history.chain import RunChain, histories, run_chain
from orga.client.history.events import happenings
from orga.client.history.values import values_of
from orga.client.past.replayed_state import history_until_task, replayed_state
from orga.workflows.decisions.result import shown_conversation
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import Page, ShownMessage


async def past_conversation(client: Client, workflow_id: str) -> list[ShownMessage]:
    """Return the messages as the model would see them, up to the last completed task. Empty if no worker took the run.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        OrgaError: Today's code cannot replay its history.
    """
    last = (await run_chain(client, workflow_id)).run_ids[-1]
    state = await _last_state(client, RunChain(workflow_id, (last,)))
    shown: list[ShownMessage] = []
    while state is not None and (page := shown_conversation(state, Page(offset=len(shown)))):
        shown += page
    return shown


async def _last_state(client: Client, last: RunChain) -> AgentState | None:
    [run] = await histories(client, last)
    done = [event.event_id for event in run.events if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]
    if done:
        return await replayed_state(history_until_task(run.history, done[-1]), values_of(client, run.history))
    return await _carried_state(client, last.workflow_id, run.run_id)


async def _carried_state(client: Client, workflow_id: str, run_id: str) -> AgentState | None:
    """Return the state that the previous run carried over, or None for the first run of a chain."""
    async with aclosing(happenings(client, workflow_id, run_id)) as found:
        async for happening in found:
            arguments: list[Any] = happening.value or []
            carried = arguments[1] if len(arguments) > 1 else None
            return None if carried is None else AgentState.model_validate(carried)
    return None
