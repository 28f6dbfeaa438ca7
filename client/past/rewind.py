"""Rewinds a run to the end of an earlier iteration: resets its workflow, and freezes the run meanwhile if necessary."""

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PostResetOperation, VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest, UpdateWorkflowExecutionOptionsRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import OrgaError, PastRefused, ServerLost
from orga.client.history.chain import (
    Boundary,
    NoSuchIteration,
    RunHistory,
    boundary_at,
    boundary_of,
    histories,
    run_chain,
)
from orga.client.history.values import converters_of, intervention_arguments, run_converters
from orga.client.past.dropped import (
    Effect,
    LiveDelegate,
    SentIntervention,
    abort_delegates,
    effects_after,
    events_after,
    interventions_after,
    live_delegates,
)
from orga.client.runs.agents import AgentHandle
from orga.client.runs.endings import kind_of
from orga.client.runs.exchange import check_length
from orga.client.server.server_errors import error_reason, is_lost
from orga.workflows.types.control import MAX_LINE_CHARS, MAX_LINES, REWOUND, Rewind
from orga.workflows.types.goals.pursuit import GoalResult
from orga.workflows.types.names import REWINDABLE_WORKFLOWS
from orga.workflows.types.text import clean_text, one_line
from orga.workflows.types.tool_calls.loop_tools import loop_tool

_OVERRIDE_MASK = FieldMask(paths=["versioning_override"])
_PINNED = VersioningOverride.PinnedOverride(
    behavior=VersioningOverride.PinnedOverrideBehavior.PINNED_OVERRIDE_BEHAVIOR_PINNED,
    version=WorkerDeploymentVersion(deployment_name="orga-held", build_id="held"),
)
"""A version that no worker has. A run that is pinned to it is frozen, because no worker gets its tasks."""

_FROZEN_OPTIONS = WorkflowExecutionOptions(versioning_override=VersioningOverride(pinned=_PINNED))
_UNFROZEN_OPTIONS = WorkflowExecutionOptions()


class RunStaysFrozen(OrgaError):
    """The server did not unfreeze a frozen run."""

    def __init__(self, workflow_id: str, error: RPCError) -> None:
        super().__init__(
            f"run {workflow_id!r} is still frozen: the server answers {error.status.name.lower()}: {error.message}; "
            "rewind it again with the same command to unfreeze it"
        )


async def is_frozen(client: Client, workflow_id: str) -> bool:
    """Return whether the run is frozen, for example because its rewind was interrupted."""
    described = await client.get_workflow_handle(workflow_id).describe()
    versioning = described.raw_description.workflow_execution_info.versioning_info
    return versioning.versioning_override.pinned.version == _PINNED.version


async def unfreeze(client: Client, workflow_id: str, run_id: str = "") -> None:
    """Unfreeze a segment, by default the latest one. Raise RunStaysFrozen if the server refuses several attempts."""
    try:
        await _set_options(client, workflow_id, run_id, _UNFROZEN_OPTIONS)
    except RPCError as error:
        raise RunStaysFrozen(workflow_id, error) from error


@asynccontextmanager
async def frozen_run(client: Client, workflow_id: str) -> AsyncGenerator[None]:
    """Freeze a run during the block, also after a reset. An ended run is not frozen, because it does nothing."""
    try:
        await _set_options(client, workflow_id, "", _FROZEN_OPTIONS)
        yield
    finally:
        await unfreeze(client, workflow_id)


async def _set_options(client: Client, workflow_id: str, run_id: str, options: WorkflowExecutionOptions) -> None:
    request = UpdateWorkflowExecutionOptionsRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        workflow_execution_options=options,
        update_mask=_OVERRIDE_MASK,
    )
    try:
        await client.workflow_service.update_workflow_execution_options(request, retry=True)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:  # an ended run has no options
            raise


_ALWAYS_EXCLUDED = (ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_CANCEL_REQUEST,)
"""A reset never delivers a cancellation again, because that would end the run again."""

_INTERVENTIONS = (
    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
)
"""A reset does not deliver these again if the person who rewinds leaves later interventions out."""


async def finish_interrupted_reset(client: Client, boundary: Boundary, argument: Any) -> str:
    """Send the signal of an interrupted reset to this boundary. Return the run id, or "" if there is no such reset."""
    run = client.get_workflow_handle(boundary.workflow_id)
    history = await run.fetch_history()
    events = history.events
    reset_event = _pending_reset_event(events)
    if reset_event is None or reset_event.event_id != boundary.event_id:
        return ""
    converter = converters_of(client, history).own_converter
    sent = [event.workflow_execution_signaled_event_attributes for event in events[reset_event.event_id :]]
    sent = [each for each in sent if each.signal_name == REWOUND]
    if [argument] not in [await intervention_arguments(converter, each.input.payloads) for each in sent]:
        await run.signal(REWOUND, argument)
    return (await run.describe()).run_id


def _pending_reset_event(events: Sequence[HistoryEvent]) -> HistoryEvent | None:
    """Return the event that a reset has written, or None if there is none or the run has continued since."""
    for event in reversed(events):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return None
        if event.workflow_task_failed_event_attributes.base_run_id:
            return event
    return None


async def reset(
    client: Client,
    boundary: Boundary,
    signal: str,
    argument: Any,
    *,
    keeps_interventions: bool,
    sender: Mapping[str, str] | None = None,
) -> str:
    """Let a live or ended run continue from the boundary, and return the run id of the new segment.

    Its first workflow task sees the interventions that the server delivers again, and then the signal. Some servers
    (such as 1.29) cannot send a signal with a reset. Then the run is frozen until the signal has been sent.
    """
    converter = run_converters(client, boundary.workflow_id).own_converter
    payloads = Payloads(payloads=await converter.encode([argument]))
    send = partial(_send_reset, client, boundary, keeps_interventions=keeps_interventions, sender=sender or {})
    with_signal = PostResetOperation(
        signal_workflow=PostResetOperation.SignalWorkflow(signal_name=signal, input=payloads)
    )
    try:
        return await send(with_signal)
    except RPCError as error:
        if error.status != RPCStatusCode.INVALID_ARGUMENT or "post reset operation" not in error.message:
            raise
    freeze = PostResetOperation.UpdateWorkflowOptions(
        workflow_execution_options=_FROZEN_OPTIONS, update_mask=_OVERRIDE_MASK
    )
    run_id = await send(PostResetOperation(update_workflow_options=freeze))
    try:
        await client.get_workflow_handle(boundary.workflow_id, run_id=run_id).signal(signal, argument)
    finally:
        await unfreeze(client, boundary.workflow_id, run_id)
    return run_id


def _sender_text(sender: Mapping[str, str]) -> str:
    """Return the end of a reset's reason, from which `has_rewound` recognises the sender."""
    return "".join(f", {name} {value}" for name, value in sender.items())


async def has_rewound(client: Client, workflow_id: str, sender: Mapping[str, str]) -> bool:
    """Return whether the latest segment of a run contains a rewind by this sender."""
    async for event in client.get_workflow_handle(workflow_id).fetch_history_events():
        failed = event.workflow_task_failed_event_attributes
        if failed.base_run_id and failed.failure.message.endswith(_sender_text(sender)):
            return True
    return False


async def _send_reset(
    client: Client,
    boundary: Boundary,
    operation: PostResetOperation,
    *,
    keeps_interventions: bool,
    sender: Mapping[str, str],
) -> str:
    excluded: Sequence[ResetReapplyExcludeType.ValueType] = _ALWAYS_EXCLUDED
    if not keeps_interventions:
        excluded = (*_ALWAYS_EXCLUDED, *_INTERVENTIONS)
    response = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=boundary.workflow_id, run_id=boundary.run_id),
            reason=f"orga: to the end of iteration {boundary.iteration}{_sender_text(sender)}",
            workflow_task_finish_event_id=boundary.event_id,
            request_id=str(uuid.uuid4()),
            reset_reapply_exclude_types=excluded,
            post_reset_operations=[operation],
            identity=client.identity,
        ),
        retry=True,
    )
    return response.run_id


@dataclass(frozen=True)
class RewindPlan:
    """The target of a rewind, and the interventions, effects and delegates that it drops."""

    boundary: Boundary
    interventions: tuple[SentIntervention, ...]
    effects: tuple[Effect, ...]
    delegates: tuple[LiveDelegate, ...] = ()
    """Live delegated runs of the dropped part. They are aborted, and must end before the run continues."""
    is_at_the_answer: bool = False
    """True if the run ended with the answer of that iteration. Then it continues only with guidance."""

    @property
    def irreversible_calls(self) -> tuple[str, ...]:
        """The irreversible calls of the dropped part, one line each: tool, arguments, outcome."""
        return tuple(
            one_line(f"{_call_text(effect)}: {effect.outcome}", MAX_LINE_CHARS)
            for effect in self.effects
            if effect.is_irreversible
        )


def _call_text(effect: Effect) -> str:
    name = effect.text if loop_tool(effect.tool).is_run else effect.tool
    return f"{name} {effect.arguments}".rstrip()


async def plan_rewind(client: Client, workflow_id: str, to_iteration: int) -> RewindPlan:
    """Return what a rewind would do. Raise NoSuchIteration or RunNotFound."""
    end = await _locate_end(client, workflow_id, to_iteration)
    interventions = await interventions_after(client, end.runs, end.boundary)
    effects = await effects_after(client, end.runs, end.boundary)
    delegates = await live_delegates(client, events_after(end.runs, end.boundary))
    return RewindPlan(end.boundary, interventions, effects, delegates, end.is_at_the_answer)


async def execute_rewind(
    client: Client,
    plan: RewindPlan,
    *,
    steer: str | None = None,
    keep_interventions: bool = True,
    sender: Mapping[str, str] | None = None,
) -> str:
    """Reset the run as planned and return the id of the run that continues.

    Args:
        client: From `connect`.
        plan: From `plan_rewind`.
        steer: Guidance for the next reasoning step.
        keep_interventions: Deliver later signals and updates again.
        sender: `by`, the person who rewinds, and then `id`, that person's id for the rewind. The history has both.

    Raises:
        OrgaError: The server refuses, the run would only end with its answer again, or a delegate does not end.
            Nothing was rewound.
    """
    boundary, guidance = plan.boundary, clean_text(steer or "").strip()
    check_length(guidance)
    if plan.is_at_the_answer and not guidance:
        raise PastRefused(
            f"iteration {boundary.iteration} is the answer of run {boundary.workflow_id!r}: say with --steer what is "
            "wrong with it, or choose an earlier iteration"
        )
    rewind = Rewind(
        to_iteration=boundary.iteration,
        boundary_at=boundary.at,
        steer=guidance or None,
        left=plan.irreversible_calls[-MAX_LINES:],
        **(sender or {}),
    )
    argument = rewind.model_dump(mode="json", exclude_defaults=True)
    try:
        async with _without_delegates(client, boundary):
            run_id = await finish_interrupted_reset(client, boundary, argument) if keep_interventions else ""
            return run_id or await reset(
                client, boundary, REWOUND, argument, keeps_interventions=keep_interventions, sender=sender
            )
    except RPCError as error:
        problem = f"the server cannot rewind {boundary.workflow_id!r}: {error_reason(error)}"
        raise (ServerLost(problem) if is_lost(error) else OrgaError(problem)) from error


async def rewind(
    client: Client, workflow_id: str, to_iteration: int, *, steer: str | None = None, keep_interventions: bool = True
) -> AgentHandle:
    """Let a live or ended run continue from the end of an earlier iteration.

    Effects of tools since then are not undone. If a call is repeated, it has the same idempotency key. The run's clock
    continues from its value at the end of that iteration.

    Args:
        client: From `connect`.
        workflow_id: The id of the run.
        to_iteration: The last iteration that is kept. 0 goes back to before the first model call.
        steer: Guidance for the next reasoning step.
        keep_interventions: Deliver later signals and updates again. An abort is never repeated.

    Raises:
        NoSuchIteration: The run has not finished that iteration.
        RunNotFound: No run has this id.
    """
    plan = await plan_rewind(client, workflow_id, to_iteration)
    await execute_rewind(client, plan, steer=steer, keep_interventions=keep_interventions)
    return AgentHandle(client, workflow_id)


class _IterationEnd(NamedTuple):
    runs: Sequence[RunHistory]
    """The segments of the run, one of which contains the end."""
    boundary: Boundary
    is_at_the_answer: bool
    """True if the run ended with the answer of the iteration."""


async def _locate_end(client: Client, workflow_id: str, iteration: int, last_run: str | None = None) -> _IterationEnd:
    """Find the end of an iteration in the chain that ends with `last_run`, or else with the latest segment.

    After an interrupted rewind, the new segment may not contain that end yet. Then it is in the one that was reset.
    """
    runs = await histories(client, await run_chain(client, workflow_id, last_run, REWINDABLE_WORKFLOWS))
    if answered := await _answer_boundary(client, workflow_id, runs[-1], iteration):
        return _IterationEnd(runs, answered, is_at_the_answer=True)
    try:
        return _IterationEnd(runs, boundary_of(workflow_id, runs, iteration), is_at_the_answer=False)
    except NoSuchIteration:
        if (reset_event := _pending_reset_event(runs[-1].events)) is None:
            raise
    base = reset_event.workflow_task_failed_event_attributes.base_run_id
    return await _locate_end(client, workflow_id, iteration, base)


@asynccontextmanager
async def _without_delegates(client: Client, boundary: Boundary) -> AsyncGenerator[None]:
    """End the delegates of the dropped part before the block. The run is frozen meanwhile, so it starts no others."""
    has_delegates = bool(await _dropped_delegates(client, boundary))
    if not has_delegates and not await is_frozen(client, boundary.workflow_id):  # a run that stayed frozen is unfrozen
        yield
        return
    why = f"the run that delegated is rewound to iteration {boundary.iteration}"
    async with frozen_run(client, boundary.workflow_id):
        while delegates := await _dropped_delegates(client, boundary):
            await abort_delegates(client, delegates, why)
        yield


async def _dropped_delegates(client: Client, boundary: Boundary) -> tuple[LiveDelegate, ...]:
    end = await _locate_end(client, boundary.workflow_id, boundary.iteration)
    return await live_delegates(client, events_after(end.runs, boundary))


async def _answer_boundary(client: Client, workflow_id: str, run: RunHistory, iteration: int) -> Boundary | None:
    """Return the end of the iteration that gave the run's answer. None for a goal, whose answer may be delivered."""
    last = run.events[-1]
    if last.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
        return None
    attributes = last.workflow_execution_completed_event_attributes
    [answer] = await converters_of(client, run.history).own_converter.decode(attributes.result.payloads)
    ended = kind_of(answer).result.model_validate(answer)
    is_answer = ended.termination.reason == "completed" and ended.iterations == iteration
    if isinstance(ended, GoalResult) or not is_answer:
        return None
    return boundary_at(workflow_id, run, iteration, attributes.workflow_task_completed_event_id)
