"""Replays a history with today's code to get the state or the conversation of a run. Forks and commands use it."""

from dataclasses import replace
from shlex import quote
from typing import Any, cast

from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    UnsandboxedWorkflowRunner,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from orga.client.errors import PastRefused
from orga.client.history.chain import RunChain, histories, run_chain
from orga.client.history.events import passed_on_state, start_arguments
from orga.client.history.values import RunConverters, converters_of
from orga.client.runners.workflows import REPLAY_BUILD, WORKFLOWS, ObservedRunner
from orga.workflows.decisions.result import shown_conversation
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import Page, ShownMessage

_UPDATES = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
)
"""Events that belong to the last completed task before them, although they do not name it."""


def history_until_task(history: WorkflowHistory, event_id: int) -> WorkflowHistory:
    """Return the history up to a completed workflow task, with the task's commands and the updates that it accepted."""
    kept = list(history.events[:event_id])
    for event in history.events[event_id:]:
        if event.event_type not in _UPDATES and _deciding_task_id(event) != event_id:
            break
        kept.append(event)
    return WorkflowHistory(history.workflow_id, kept)


async def replayed_state(history: WorkflowHistory, converters: RunConverters) -> AgentState:
    """Return the run's state at the end of `history`. Raise OrgaError if today's code cannot replay it."""
    seen = _StateObserver()
    replayer = Replayer(
        workflows=WORKFLOWS,
        namespace=converters.namespace,
        data_converter=converters.base,
        unsandboxed_workflow_runner=ObservedRunner(UnsandboxedWorkflowRunner(), seen.observe),
        interceptors=[seen],
        build_id=REPLAY_BUILD,
    )
    replayed = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if replayed.replay_failure is not None or seen.state is None:
        workflow_id = history.workflow_id
        raise PastRefused(
            f"today's code does not replay {workflow_id!r}; see: orga verify {quote(workflow_id)}"
        ) from replayed.replay_failure
    return seen.state


def _deciding_task_id(event: HistoryEvent) -> int:
    attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
    return int(getattr(attributes, "workflow_task_completed_event_id", 0))


class _StateObserver(Interceptor):
    """Keeps the state of the workflow after each task. It ignores the eviction, which cancels the workflow."""

    def __init__(self) -> None:
        self.state: AgentState | None = None
        self._instance: Any = None

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        seen = self

        class Inbound(WorkflowInboundInterceptor):
            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
                seen._instance = workflow.instance()
                return await super().execute_workflow(input)

        return Inbound

    def observe(self, activation: WorkflowActivation, _: WorkflowActivationCompletion) -> None:
        is_eviction = any(job.HasField("remove_from_cache") for job in activation.jobs)
        if self._instance is not None and not is_eviction:
            self.state = cast("AgentState", self._instance._run.state)


async def past_conversation(client: Client, workflow_id: str) -> list[ShownMessage]:
    """Return the messages as the model would see them, up to the last completed task. Empty if no worker took the run.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        OrgaError: Today's code cannot replay its history.
    """
    state = await _last_state(client, await run_chain(client, workflow_id))
    shown: list[ShownMessage] = []
    while state is not None and (page := shown_conversation(state, Page(offset=len(shown)))):
        shown += page
    return shown


async def _last_state(client: Client, chain: RunChain) -> AgentState | None:
    """Return the state after the last completed task. None if there was no task yet in the run's only segment."""
    [run] = await histories(client, replace(chain, run_ids=chain.run_ids[-1:]))
    converters = converters_of(client, run.history)
    completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    tasks = [event.event_id for event in run.events if event.event_type == completed]
    if tasks:
        return await replayed_state(history_until_task(run.history, tasks[-1]), converters)
    started = run.events[0].workflow_execution_started_event_attributes
    passed_on = passed_on_state(await start_arguments(converters.own_converter, started))
    return None if passed_on is None else AgentState.model_validate(passed_on)
