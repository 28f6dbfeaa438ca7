"""The Python API of goals: start a goal, and override its next step."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from temporalio.client import Client
from temporalio.common import TypedSearchAttributes

from orga.client.runs.agents import AgentHandle, given_fields, new_run_id, start_run
from orga.client.runs.exchange import sender_fields
from orga.workflows.types.goals.goal_input import GoalInput, parse_goal
from orga.workflows.types.names import GOAL_WORKFLOW
from orga.workflows.types.text import clean_text

if TYPE_CHECKING:
    from orga.client.runs.attachments import Attachable
    from orga.workflows.types.goals.pursuit import GoalResult, GoalStatus


class GoalHandle(AgentHandle):
    """A goal, live or ended: `GoalHandle(client, id)`. It has all methods of an `AgentHandle`."""

    async def override_step(
        self, skill: str, given: Mapping[str, Any] | str, *, by: str = "", intervention_id: str = ""
    ) -> None:
        """Replace the next step of the plan by this one.

        This sends a signal, so it raises no error if the run cannot use the step (unknown skill, no plan yet). Then the
        journal has an `InterventionRefused`.

        Args:
            skill: A tool, or an agent that the goal may delegate to.
            given: The arguments of the call, or a text that describes what to do.
            by: As for `steer`.
            intervention_id: As for `steer`.

        Raises:
            RunNotFound: No run has this id.
            RunEnded: The run accepts no more signals.
        """
        step_input = clean_text(given) if isinstance(given, str) else dict(given)
        step = {"skill": clean_text(skill), "input": step_input, **sender_fields(by, intervention_id)}
        await self._exchange.signal("override_step", step)

    async def status(self) -> "GoalStatus":
        """Return the goal's current status.

        Raises:
            NoAnswer: No worker is running that can answer.
            NotAnAgent: The run is no goal.
        """
        from orga.workflows.types.goals.pursuit import GoalStatus

        return await self._checked_kind(await super().status(), GoalStatus, GOAL_WORKFLOW)

    async def result(self) -> "GoalResult":
        """Wait for the goal to end and return its result, with plan, steps, confidence and sources.

        It raises the errors of `AgentHandle.result`, and NotAnAgent if the run is no goal.
        """
        from orga.workflows.types.goals.pursuit import GoalResult

        return await self._checked_kind(await super().result(), GoalResult, GOAL_WORKFLOW)


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
    attachments: "Sequence[Attachable]" = (),
) -> GoalHandle:
    """Start a goal and return its handle.

    Args:
        client: As for `start_agent`.
        goal: The text of the goal, or the input of `GoalWorkflow`.
        workflow_id: The goal's id, by default `goal-<uuid7>`.
        task_queue: As for `start_agent`.
        again: As for `start_agent`.
        search_attributes: As for `start_agent`.
        pipeline: The name of a plan in the worker's configuration. A pipeline in `goal` takes precedence.
        inputs: Inputs for a pipeline that maps over them. Inputs in `goal` take precedence.
        attachments: As for `start_agent`.

    Raises:
        InvalidInput: The input is invalid. The text names each bad key, and nothing was started.
        OrgaError: A run with this id is live, or has ended and `again` is False.
    """
    defaults: dict[str, Any] = {}
    if pipeline is not None:
        defaults["pipeline"] = pipeline
    if inputs is not None:
        defaults["inputs"] = tuple(inputs)
    given = {"goal": goal} if isinstance(goal, str) else given_fields(goal, parse_goal)
    checked = parse_goal({**defaults, **given})
    run_id = new_run_id(workflow_id, "goal")
    if attachments:
        from orga.client.runs.attachments import with_attachments

        checked = await with_attachments(checked, attachments, client)
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
