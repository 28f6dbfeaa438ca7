"""Forks a run or a goal: starts another one with the same past, up to the end of an iteration."""

from collections.abc import Collection, Mapping
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from orga.client.config.workplace import recorded_policy, recorded_workplace
from orga.client.errors import OrgaError
from orga.client.past.shared import shared_past
from orga.client.runs.agents import SUMMARY_CHARS, AgentHandle, run_id_of
from orga.client.runs.goals import GoalHandle, goal_id_of
from orga.client.runs.ids import id_taken_error, reuse_policy
from orga.workflows.types.input import run_memo
from orga.workflows.types.names import AGENT_WORKFLOW, GOAL_WORKFLOW
from orga.workflows.types.past import ForkInput, GoalForkInput, parse_fork, parse_goal_fork
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import one_line


async def fork(
    client: Client,
    workflow_id: str,
    at_iteration: int,
    *,
    changes: Mapping[str, Any] | None = None,
    task: str | None = None,
    requeue: Collection[str] = (),
    new_id: str | None = None,
) -> AgentHandle:
    """Start a run that shares another's past up to the end of an iteration. The other run does not change.

    The fork is started with a reference: its worker reads the past from the other run's history.

    The fork has the model, instructions and settings of its past, and its agent's present tools. A goal also keeps
    plan, scores and memory. Its effects are its own: its idempotency keys differ from the other run's, except for dead
    letters that it sends again.

    Args:
        client: From `connect`.
        workflow_id: The run whose past is shared, live or ended.
        at_iteration: The last iteration of that past. 0 shares only the setup.
        changes: Keys of the input that differ in the fork (`model`, `instructions`, `tools`, `agent`; for a goal
            `model`, `skills`, `agent`, `deliver`). Keys of `config` are changed one by one.
        task: The fork's task, asked after the conversation so far. At iteration 0 it replaces the old task. A goal
            takes it as guidance.
        requeue: Dead letters of that past that the fork sends again first.
        new_id: The fork's id, by default `agent-<uuid7>`, or `goal-<uuid7>` for a goal.

    Raises:
        InvalidInput: The input is invalid. The text names each bad key, and nothing was started.
        NoSuchIteration: The run has not finished that iteration.
        RunNotFound: No run has this id.
    """
    described = await AgentHandle(client, workflow_id).describe()
    is_goal = described.workflow_type == GOAL_WORKFLOW
    new_run_id = goal_id_of(new_id) if is_goal else run_id_of(new_id)
    given: dict[str, Any] = {"workflow_id": workflow_id, "iteration": at_iteration, "requeue": list(requeue)}
    whole = {"fork": given, **(changes or {}), **({} if task is None else {"task": task})}
    wish = parse_goal_fork(whole) if is_goal else parse_fork(whole)
    return await _start_fork(client, described, wish, await shared_past(client, wish), new_run_id)


async def _start_fork(
    client: Client,
    described: WorkflowExecutionDescription,
    wish: ForkInput | GoalForkInput,
    past: AgentState,
    workflow_id: str,
) -> AgentHandle:
    """Start the fork with a reference to exactly this past. The worker reads it again, from the same run."""
    run_id = past.forked_from.run_id if past.forked_from else ""
    named = wish.with_run(run_id)
    memo = run_memo(await recorded_workplace(described), await recorded_policy(described))
    try:
        await client.start_workflow(
            GOAL_WORKFLOW if isinstance(wish, GoalForkInput) else AGENT_WORKFLOW,
            named.model_dump(mode="json", exclude_unset=True),
            id=workflow_id,
            task_queue=described.task_queue,
            id_reuse_policy=reuse_policy(),
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            static_summary=one_line(past.input.task, SUMMARY_CHARS),
            memo=memo or None,
        )
    except WorkflowAlreadyStartedError:
        raise await id_taken_error(client, workflow_id, "leave it out") from None
    except RPCError as error:
        raise OrgaError(f"the server refuses {workflow_id!r}: {error.message}") from error
    return GoalHandle(client, workflow_id) if isinstance(wish, GoalForkInput) else AgentHandle(client, workflow_id)
