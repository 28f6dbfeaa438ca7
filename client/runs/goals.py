"""Goals from Python: start one, answer what it asks, and all that can be done with a run of an agent."""

from collections.abc import Mapping, Sequence
from typing import Any

import uuid_utils
from temporalio.client import Client
from temporalio.common import TypedSearchAttributes

from orga.client.runs.agents import AgentHandle, run_id_of, start_run
from orga.workflows.types.goals.input import GoalInput, parse_goal
from orga.workflows.types.names import GOAL_WORKFLOW
from orga.workflows.types.text import clean_text


class GoalHandle(AgentHandle):
    """A goal, live or ended: `GoalHandle(client, id)`. It can do all that an `AgentHandle` can."""

    async def override_step(self, skill: str, given: Mapping[str, Any] | str) -> None:
        """Have this done in place of the step that is due next.

        A signal: what is of no use (no such skill, no plan yet) the journal tells as `InterventionRefused`.

        Args:
            skill: A tool, or an agent that may be delegated to.
            given: The arguments of the call, or what it is to do as a text.

        Raises:
            RunNotFound: No run has this id.
            RunEnded: It takes no more signals.
        """
        said = clean_text(given) if isinstance(given, str) else dict(given)
        await self._exchange.signal("override_step", {"skill": clean_text(skill), "input": said})


async def start_goal(
    client: Client,
    goal: GoalInput | Mapping[str, Any] | str,
    *,
    workflow_id: str | None = None,
    task_queue: str | None = None,
    again: bool = False,
    search_attributes: TypedSearchAttributes = TypedSearchAttributes.empty,
    pipeline: str | None = None,
    inputs: Sequence[str] | None = None,
) -> GoalHandle:
    """Start a goal and return its handle; a string is the goal, the rest is as for `start_agent`.

    Args:
        client: As for `start_agent`.
        goal: Its text, or its input.
        workflow_id: As for `start_agent`.
        task_queue: As for `start_agent`: with a client of your own, what your `Worker` polls.
        again: As for `start_agent`.
        search_attributes: As for `start_agent`.
        pipeline: A plan of the worker's configuration, where the input names none.
        inputs: Of a pipeline that maps, where the input gives none.

    Raises:
        InvalidInput: Before anything is started, naming each bad key.
        OrgaError: A run with this id is live, or has ended and `again` does not say that this is meant.
    """
    more = {"pipeline": pipeline, "inputs": None if inputs is None else tuple(inputs)}
    checked = _checked_goal(goal, {key: value for key, value in more.items() if value is not None})
    run_id = goal_id_of(workflow_id)
    await start_run(
        client,
        GOAL_WORKFLOW,
        checked,
        checked.goal,
        run_id,
        task_queue=task_queue,
        again=again,
        attributes=search_attributes,
    )
    return GoalHandle(client, run_id)


def _checked_goal(goal: GoalInput | Mapping[str, Any] | str, more: Mapping[str, Any]) -> GoalInput:
    if isinstance(goal, GoalInput):
        return parse_goal({**more, **{key: getattr(goal, key) for key in goal.model_fields_set}} if more else goal)
    return parse_goal({**more, **({"goal": goal} if isinstance(goal, str) else goal)})


def goal_id_of(given: str | None) -> str:
    """Return the id that a new goal gets: `goal-<uuid7>` unless one is given.

    Raises:
        InvalidInput: As for a run.
    """
    return f"goal-{uuid_utils.uuid7()}" if given is None else run_id_of(given)
