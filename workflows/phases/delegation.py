"""Delegation: starts a run of another agent and watches it. The other run uses this file to report its pauses."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import FailureError

from orga.workflows.decisions.control.interventions import signal_argument
from orga.workflows.decisions.tool_calls import delegation
from orga.workflows.decisions.tool_calls.calls import not_run_outcome
from orga.workflows.decisions.tool_calls.delegation import (
    delegate_abort_reason,
    delegate_ceiling,
    exhausted_limits,
    is_paused_by_people,
)
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.attempt import CallIdentity, FailedCall, KnownEffect, confirm_call_if_paused
from orga.workflows.phases.control.failure_text import failure_text
from orga.workflows.phases.control.run import CANCEL_GRACE_S
from orga.workflows.phases.control.visibility import show_details
from orga.workflows.phases.gate import AllowedCall
from orga.workflows.phases.waiting_calls import execute_deferred, execute_with_inputs
from orga.workflows.types.limits import Ceiling
from orga.workflows.types.names import AGENT_WORKFLOW
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import AgentResult
from orga.workflows.types.text import one_line
from orga.workflows.types.tool_calls.delegation import Child, child_id, delegate_arguments
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.recovery import Outcome
from orga.workflows.types.workplace import inherited_memo

ID_REUSE_POLICY = WorkflowIDReusePolicy.TERMINATE_IF_RUNNING
"""A run that was reset makes the same call with the same id. An older delegate with this id has lost its parent, so it
is terminated.
"""

PARENT_CLOSE_POLICY = workflow.ParentClosePolicy.REQUEST_CANCEL
"""A delegate whose parent has closed ends like after an abort, so that it completes its compensations."""

ChildHandle = workflow.ChildWorkflowHandle[Any, Any]


async def execute_tool_call(run: Run, allowed: AllowedCall, identity: CallIdentity) -> Outcome | FailedCall:
    """Carry out the call as its tool requires. Without delegates, a tool named `delegate` is an ordinary tool."""
    if loop_tool(allowed.call.name).is_run and run.setup.delegates:
        return await _execute_delegate(run, allowed, identity)
    if (terms := allowed.spec.deferred) is not None:
        return await execute_deferred(run, allowed, terms, identity)
    return await execute_with_inputs(run, allowed, identity)


async def _execute_delegate(run: Run, allowed: AllowedCall, identity: CallIdentity) -> Outcome | FailedCall:
    """Carry out the call in one of the run's slots. The delegate's own calls have slots of their own."""
    target, task = delegate_arguments(allowed.call.arguments)
    refusal = delegation.delegation_problem(run.state, target)
    if refusal:
        return not_run_outcome(allowed.call, refusal)
    workflow_id = child_id(workflow.info().workflow_id, identity.activity_id)
    child = Child(workflow_id=workflow_id, agent=target, task=one_line(task, delegation.SHOWN_CHARS))
    run.change_state(delegation.with_waiting_delegate, child)
    paused_before_s = run.paused_seconds()
    try:
        await asyncio.sleep(0)  # until all delegates of the reply are recorded, so that they get equal shares
        await run.slots.acquire()
    except asyncio.CancelledError:
        return _not_started(run, child, not_run_outcome(allowed.call))
    try:
        confirmed = await confirm_call_if_paused(run, allowed, identity.activity_id, paused_before_s)
        if isinstance(confirmed, Outcome):
            return _not_started(run, child, confirmed)
        return await _run_uncancelled(_execute_with_ceiling(run, confirmed, identity, child))
    finally:
        run.slots.release()


def _not_started(run: Run, child: Child, ending: Outcome | FailedCall) -> Outcome | FailedCall:
    """Remove a delegate that was not started from the state, and return the ending of its call."""
    run.change_state(delegation.without_delegate, child.workflow_id)
    return ending


async def _execute_with_ceiling(
    run: Run, allowed: AllowedCall, identity: CallIdentity, child: Child
) -> Outcome | FailedCall:
    if run.is_interrupted():
        return _not_started(run, child, not_run_outcome(allowed.call))
    ceiling = delegate_ceiling(run.state, child.workflow_id, run.now)
    if (tools := delegation.child_tools(run.state, child.agent, allowed.verdict)) is not None:
        ceiling = ceiling.with_tools(tools)
    if lacks := exhausted_limits(ceiling):
        why = f"nothing is left to delegate with: {', '.join(lacks)}; do it yourself"
        return _not_started(run, child, not_run_outcome(allowed.call, why))
    run.change_state(delegation.with_reserved_ceiling, child.workflow_id, ceiling)
    try:
        async with run.starts:
            handle = await run.wait_for_event(_start_child(run, allowed, identity, child, ceiling))
    except InvalidInput as error:
        return _not_started(run, child, not_run_outcome(allowed.call, str(error)))
    except FailureError as error:
        text = f"agent {child.agent!r} could not be started: {failure_text(error)}"
        return _not_started(run, child, FailedCall(text, KnownEffect.NOT_RUN))
    show_details(run)
    await _watch_child(run, handle)
    outcome = await _await_ending(run, allowed, child, handle)
    show_details(run)
    return outcome


async def _start_child(
    run: Run, allowed: AllowedCall, identity: CallIdentity, child: Child, ceiling: Ceiling
) -> ChildHandle:
    _, task = delegate_arguments(allowed.call.arguments)
    parent, is_awaited = workflow.info().workflow_id, run.waits_for_cut_calls
    given = delegation.child_input(
        run.state, child, task, ceiling, parent=parent, key=identity.key, is_awaited=is_awaited
    )
    return await workflow.start_child_workflow(
        AGENT_WORKFLOW,
        given,
        id=child.workflow_id,
        id_reuse_policy=ID_REUSE_POLICY,
        parent_close_policy=PARENT_CLOSE_POLICY,
        static_summary=one_line(f"{child.agent}: {task}"),
        memo=inherited_memo(workflow.memo_value),
    )


async def _await_ending(run: Run, allowed: AllowedCall, child: Child, handle: ChildHandle) -> Outcome | FailedCall:
    result, problem = None, ""
    try:
        result = AgentResult.model_validate(await run.wait_for_event(handle))
    except FailureError as failure:
        problem = failure_text(failure.cause or failure)
    except ValidationError:
        problem = "its result cannot be read"
    run.change_state(delegation.with_delegate_usage, child.workflow_id, result)
    run.change_state(AgentState.with_clock_updated, run.now)
    if result is None:
        return FailedCall(f"agent {child.agent!r} ended without a result: {problem}", KnownEffect.UNKNOWN)
    max_bytes = allowed.spec.max_result_bytes
    if result.termination.reason == "completed":
        answer = delegation.delegate_answer_text(child.agent, result, max_bytes)
        return Outcome(call=allowed.call, status="ok", text="").with_own_text(before=answer)
    has_acted = result.tool_calls.run or result.tool_calls.delegated
    effect = KnownEffect.UNKNOWN if has_acted else KnownEffect.NONE
    return FailedCall(delegation.delegate_shortfall_text(child.agent, result, max_bytes), effect)


async def _run_uncancelled(work: Coroutine[Any, Any, Outcome | FailedCall]) -> Outcome | FailedCall:
    """Let work that handles interruptions itself finish when the call is cancelled."""
    task = asyncio.create_task(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done():
                raise


async def _watch_child(run: Run, child: ChildHandle) -> None:
    """Wait until the child has ended. Pass on guidance, pauses and the parent's own ending meanwhile."""
    relay = _InterventionRelay(run, child)
    while not child.done():
        await workflow.wait_condition(lambda: child.done() or run.is_interrupted() or relay.has_unsent)
        if run.is_interrupted():
            return await _end_child(run, child)
        await relay.send_next()
    return None


async def _end_child(run: Run, child: ChildHandle) -> None:
    """Abort the child and wait for its result. If it does not end within `CANCEL_GRACE_S`, cancel it.

    In a turn of a session, its calls get the time that they need: it is cancelled only once the run gives up the wait.
    This may continue after the call has its outcome, because the child's usage is counted whenever it ends.
    """
    await _signal_child(child, "abort", delegate_abort_reason(run.state))
    try:
        await workflow.wait_condition(
            child.done, timeout=CANCEL_GRACE_S, timeout_summary="for an aborted delegate to end"
        )
    except TimeoutError:
        run.advance_clock()
        if run.waits_for_cut_calls:
            await workflow.wait_condition(lambda: child.done() or run.is_waiting_given_up)
        if not child.done():
            child.cancel()
            await workflow.wait_condition(child.done)


class _InterventionRelay:
    """Passes the parent's interventions on to a child, including guidance that was unread when the child started."""

    def __init__(self, run: Run, child: ChildHandle) -> None:
        self._run = run
        self._child = child
        self._sent_count = 0
        self._is_paused = False

    @property
    def has_unsent(self) -> bool:
        state = self._run.state
        return state.paused != self._is_paused or len(state.inbox) > self._sent_count

    async def send_next(self) -> None:
        """Pass on one unsent intervention. The next one has to wait: the server does not keep signals in order."""
        state = self._run.state
        if state.paused != self._is_paused:
            self._is_paused = state.paused
            await _signal_child(self._child, "pause" if state.paused else "resume")
        elif self.has_unsent:
            item = state.inbox[self._sent_count]
            self._sent_count += 1
            if item.is_for_delegates:
                await _signal_child(self._child, item.kind, signal_argument(item))


async def _signal_child(child: ChildHandle, signal: str, *arguments: str | dict[str, str]) -> None:
    """Send a signal. It is no error if the child has ended before."""
    if child.done():
        return
    try:
        await child.signal(signal, args=list(arguments))
    except FailureError:
        workflow.logger.info("%s came too late for %s", signal, child.id)


DELEGATE_HELD_SIGNAL = "delegate_held"


async def report_pauses_to_parent(parent_id: str, run: Run) -> None:
    """Report to the parent whenever a person holds up this run or no longer does, until the task is cancelled."""
    own_id, parent = workflow.info().workflow_id, workflow.get_external_workflow_handle(parent_id)
    while True:
        await workflow.wait_condition(lambda: is_paused_by_people(run.state) != run.state.told_held)
        is_held = is_paused_by_people(run.state)
        try:
            await parent.signal(DELEGATE_HELD_SIGNAL, args=[own_id, is_held])
        except FailureError:  # the parent has ended
            return
        # set after the signal: if continue-as-new comes between, the next segment reports it again
        run.change_state(AgentState.with_family, told_held=is_held)
