"""The public API for workflows of an application: `run_agent` runs an agent as a child of the calling workflow."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from orga.workflows.types.given_messages import GivenMessage
from orga.workflows.types.input import AgentInput, Attachment, LoopConfig, LoopSettings, parse_input
from orga.workflows.types.names import AGENT_WORKFLOW
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.status import AgentResult
from orga.workflows.types.text import one_line
from orga.workflows.types.workplace import inherited_memo

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
    output_schema: Mapping[str, Any] | type | None = None,
    messages: Sequence[GivenMessage | Mapping[str, Any]] | None = None,
    attachments: Sequence[Attachment | Mapping[str, Any]] | None = None,
    tenant: str | None = None,
    workflow_id: str | None = None,
    task_queue: str | None = None,
) -> AgentResult:
    """Run an agent as a child of the calling workflow, and return the run's result, however the run ended.

    If the workflow is cancelled, the child is aborted, and `run_agent` raises the cancellation after the child's end.
    If the workflow ends in any other way, the child is aborted, too.

    Args:
        task: The agent's task.
        agent: The agent's name, from `orga.toml` or from code.
        config: Settings of this run. Each overrides the agent's own.
        model: `provider:model` or `tier:NAME`, in place of the agent's.
        instructions: Instructions in place of the agent's.
        tools: A subset of the tools of the agent and its delegates.
        trusted_context: Facts for policies and decisions. No model and no tool can write them.
        output_schema: JSON Schema of the answer, or a type, such as a pydantic model. The result then holds the answer
            as `data`, and `result.data_as(TYPE)` returns it as that type.
        messages: The conversation before the task, in the form of `AgentHandle.conversation`. A message is untrusted
            unless its `trusted` is true.
        attachments: References to pictures and documents, from `orga.runs.keep_attachments`. A workflow cannot store
            the files itself.
        tenant: The owner of the run. Lists of runs can be limited to a tenant.
        workflow_id: The id of the child. By default `agent-<uuid>`.
        task_queue: The queue of workers with that agent. By default the workflow's own.

    Raises:
        ApplicationError: The input is invalid, and nothing was started. The text names each bad key. The error has the
            type `InvalidInput` and is not retryable.
        ChildWorkflowError: The run failed, because there is no such agent or tool, or because of a defect.
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
        "attachments": attachments,
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
    except asyncio.CancelledError:  # without this, the child's result would replace the cancellation
        child.cancel()
        await workflow.wait([child])
        raise


def _checked_input(given: dict[str, Any]) -> AgentInput:
    try:
        return parse_input(given)
    except InvalidInput as error:  # any other error would be retried for ever
        raise ApplicationError(str(error), type="InvalidInput", non_retryable=True) from None


__all__ = ["run_agent"]
