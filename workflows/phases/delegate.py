"""A `delegate` call, carried out by a run of the other agent: a child workflow that this run watches over."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import FailureError

from workflows.decisions import delegation
from workflows.decisions.ceilings import ceiling_for, lacking
from workflows.decisions.clock import with_clock_updated
from workflows.decisions.outcomes import not_run
from workflows.phases.attempt import Failed, Place
from workflows.phases.failures import failure_text
from workflows.phases.gate import AllowedCall
from workflows.phases.home import handed_on
from workflows.phases.pace import set_phase
from workflows.phases.relay import attend
from workflows.phases.run import Run
from workflows.types.delegation import Ceiling, child_id, delegate_arguments
from workflows.types.input import InvalidInput
from workflows.types.names import AGENT_WORKFLOW
from workflows.types.outcome import Outcome
from workflows.types.result import AgentResult
from workflows.types.state import Child
from workflows.types.visible import one_line

REUSE = WorkflowIDReusePolicy.TERMINATE_IF_RUNNING
"""A run that was reset makes the same call under the same id. Whoever still works on it there has lost its parent, and
was not let to its end by `orga rewind`."""

CLOSE = workflow.ParentClosePolicy.REQUEST_CANCEL
"""A delegate whose parent is gone ends as by an abort: what a saga of its has done is taken back to the end."""


async def execute_delegate(run: Run, permitted: AllowedCall, place: Place) -> Outcome | Failed:
    """Carry the call out, in one of the run's slots: a delegate never waits for a slot of its parent's."""
    target, task = delegate_arguments(permitted.call.arguments)
    refusal = delegation.refusal(run.state, target)
    if refusal:
        return not_run(permitted.call, refusal)
    identity = child_id(workflow.info().workflow_id, place.activity_id)
    child = Child(workflow_id=identity, agent=target, task=one_line(task, delegation.SHOWN_CHARS))
    run.change(delegation.announced, child)
    try:
        await asyncio.sleep(0)  # by then all delegates of the reply are announced, and share alike
        await run.slots.acquire()
    except asyncio.CancelledError:
        run.change(delegation.without, identity)
        return not_run(permitted.call)
    try:
        return await _unbroken(_in_slot(run, permitted, place, child))
    finally:
        run.slots.release()


async def _in_slot(run: Run, permitted: AllowedCall, place: Place, child: Child) -> Outcome | Failed:
    if run.is_interrupted():
        run.change(delegation.without, child.workflow_id)
        return not_run(permitted.call)
    ceiling = _ceiling(run, permitted, child)
    if lacks := lacking(ceiling):
        run.change(delegation.without, child.workflow_id)
        return not_run(permitted.call, f"nothing is left to delegate with: {', '.join(lacks)}; do it yourself")
    run.change(delegation.reserved, child.workflow_id, ceiling)
    try:
        async with run.starts:
            handle = await run.event(_started(run, permitted, place, child, ceiling))
    except InvalidInput as error:
        run.change(delegation.without, child.workflow_id)
        return not_run(permitted.call, str(error))
    except FailureError as error:
        run.change(delegation.without, child.workflow_id)
        return Failed(f"agent {child.agent!r} could not be started: {failure_text(error)}", was_run=False)
    set_phase(run, run.state.phase)
    await attend(run, handle)
    outcome = await _ending(run, permitted, child, handle)
    set_phase(run, run.state.phase)
    return outcome


def _ceiling(run: Run, permitted: AllowedCall, child: Child) -> Ceiling:
    ceiling = ceiling_for(run.state, child.workflow_id, run.now)
    tools = delegation.child_tools(run.state, child.agent, permitted.verdict)
    return ceiling if tools is None else ceiling.model_copy(update={"tools": tools})


async def _started(
    run: Run, permitted: AllowedCall, place: Place, child: Child, ceiling: Ceiling
) -> workflow.ChildWorkflowHandle[Any, Any]:
    _, task = delegate_arguments(permitted.call.arguments)
    parent = workflow.info().workflow_id
    return await workflow.start_child_workflow(
        AGENT_WORKFLOW,
        delegation.child_input(run.state, child, task, ceiling, parent=parent, key=place.key),
        id=child.workflow_id,
        id_reuse_policy=REUSE,
        parent_close_policy=CLOSE,
        static_summary=one_line(f"{child.agent}: {task}"),
        memo=handed_on(),
    )


async def _ending(
    run: Run, permitted: AllowedCall, child: Child, handle: workflow.ChildWorkflowHandle[Any, Any]
) -> Outcome | Failed:
    """Settle what an ended delegate used, and say what came of it."""
    result, error = None, "its result cannot be read"
    try:
        result = AgentResult.model_validate(await run.event(handle))
    except FailureError as failure:
        error = failure_text(failure.cause or failure)
    except ValidationError:
        pass
    run.change(delegation.settled, child.workflow_id, result)
    run.change(with_clock_updated, run.now)
    if result is None:
        return Failed(f"agent {child.agent!r} ended without a result: {error}", is_unknown=True)
    most = permitted.spec.max_result_bytes
    if result.termination.reason == "completed":
        answer = delegation.answer_text(child.agent, result, most)
        return Outcome(call=permitted.call, status="ok", text="").with_words(before=answer)
    had_effect = bool(result.tool_calls.run or result.tool_calls.delegated)
    return Failed(delegation.shortfall_text(child.agent, result, most), is_unknown=had_effect)


async def _unbroken(work: Coroutine[Any, Any, Outcome | Failed]) -> Outcome | Failed:
    """Let work that sees an interruption by itself go on to its end when the call is cancelled."""
    task = asyncio.create_task(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done():
                raise
