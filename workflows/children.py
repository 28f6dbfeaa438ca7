"""An agent's run as a child of somebody's own workflow."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from orga.workflows.types.given_messages import GivenMessage
from orga.workflows.types.input import AgentInput, LoopConfig, LoopSettings, inherited_memo, parse_input
from orga.workflows.types.names import AGENT_WORKFLOW
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.status import AgentResult
from orga.workflows.types.text import one_line

SUMMARY_CHARS = 150


async def run_agent(
    task: str,
    *,
    agent: str = "default",
    config: LoopConfig | LoopSettings | None = None,
    model: str | None = None,
    instructions: str | None = None,
    tools: Sequence[str] | None = None,
    trusted_context: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    messages: Sequence[GivenMessage | Mapping[str, Any]] | None = None,
    tenant: str | None = None,
    workflow_id: str | None = None,
    task_queue: str | None = None,
) -> AgentResult:
    """Run an agent as a child of the workflow that calls this, and return its result, however it ended.

    When the workflow is cancelled, its child ends as by an abort, and the cancellation goes on once it has ended. When
    the workflow ends otherwise, so does its child.

    Args:
        task: What the agent is to do.
        agent: By name: of `orga.toml`, or given in code.
        config: Settings of this run; each wins over the agent's own.
        model: `provider:model` or `tier:NAME`, in place of the agent's.
        instructions: In place of the agent's.
        tools: A part of the agent's tools, and of those of its delegates.
        trusted_context: Facts for policies and decisions; no model and no tool can write them.
        output_schema: JSON Schema of the answer, which is `data` of the result then.
        messages: What was said before the task, as `conversation` of a run shows it; untrusted unless a message says
            `trusted`.
        tenant: By which runs are listed.
        workflow_id: Of the child; `agent-<uuid>` unless given.
        task_queue: Where workers with that agent poll; that of the workflow unless given.

    Raises:
        ApplicationError: `InvalidInput`, not retryable, naming each bad key: nothing was started.
        ChildWorkflowError: The run failed: there is no such agent or tool, or a defect.
    """
    given = {
        "task": task,
        "agent": agent,
        "config": config,
        "model": model,
        "instructions": instructions,
        "tools": tools,
        "trusted_context": trusted_context,
        "output_schema": output_schema,
        "messages": messages,
        "tenant": tenant,
    }
    checked = _checked_input({name: value for name, value in given.items() if value is not None})
    child = await workflow.start_child_workflow(
        AGENT_WORKFLOW,
        checked.model_dump(mode="json", exclude_unset=True),
        id=workflow_id or f"agent-{workflow.uuid4()}",
        task_queue=task_queue,
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        static_summary=one_line(task, SUMMARY_CHARS),
        memo=inherited_memo(workflow.memo_value),
    )
    try:
        return AgentResult.model_validate(await asyncio.shield(child))
    except asyncio.CancelledError:  # by itself the child's result would take the place of the cancellation
        child.cancel()
        await workflow.wait([child])
        raise


def _checked_input(given: dict[str, Any]) -> AgentInput:
    try:
        return parse_input(given)
    except InvalidInput as error:  # any other error would be tried again, for ever
        raise ApplicationError(str(error), type="InvalidInput", non_retryable=True) from None
