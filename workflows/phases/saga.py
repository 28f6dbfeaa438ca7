"""A `saga` call: its steps in order, each through the gate. If one fails, the finished steps are compensated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from temporalio import workflow

from orga.workflows.decisions.tool_calls import saga
from orga.workflows.decisions.tool_calls.calls import not_run_outcome, refused_outcome, with_argument_change
from orga.workflows.decisions.tool_calls.recovery import with_recovery_note
from orga.workflows.decisions.tool_calls.saga import SagaCourse, saga_outcome, saga_stop_text
from orga.workflows.phases import gate
from orga.workflows.phases.attempt import is_acting_step, task_outcome
from orga.workflows.phases.control.run import CutShort, Interrupted
from orga.workflows.phases.gate import AllowedCall
from orga.workflows.phases.questions import ask_approval, confirm_when_resumed
from orga.workflows.phases.run import Run
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.gate import Purpose
from orga.workflows.types.tool_calls.loop_tools import SagaStep
from orga.workflows.types.tool_calls.recovery import Outcome

UNDO_GRACE_S = 60.0
"""Seconds for compensations once the run is interrupted, because an abort must not leave half a saga.

A step that ignores its cut first gets as many seconds to end by itself.
"""

PartExecutor = Callable[[Run, AllowedCall, str, CutShort], Awaitable[Outcome]]
"""Carries out one allowed call at a place, until it is cut short."""


class _SagaPart(NamedTuple):
    """A step, or its compensation."""

    place: str
    """The saga's place with `.s1` for its second step, or `.c1` for that step's compensation."""
    call: ToolCall
    purpose: Purpose
    kind: str


class _RunningSaga(NamedTuple):
    """One saga of a run. It holds no slot: its calls take slots one after the other."""

    run: Run
    call: ToolCall
    place: str
    steps: tuple[SagaStep, ...]
    carry: PartExecutor

    def step(self, index: int) -> _SagaPart:
        step, place = self.steps[index], f"{self.place}.s{index}"
        return _SagaPart(place, saga.part_call(self.call, place, step), "saga", step.kind)

    def compensation(self, index: int) -> _SagaPart | None:
        action, place = self.steps[index].compensation, f"{self.place}.c{index}"
        if action is None:
            return None
        return _SagaPart(place, saga.part_call(self.call, place, action), "compensation", "compensation")


async def execute_saga(run: Run, allowed: AllowedCall, activity_id: str, carry: PartExecutor) -> Outcome:
    """Return the single outcome of a saga. It handles interruptions itself, and must not be cancelled.

    Its own recovery is compensation. Its tools' recoveries apply to its calls.
    """
    try:
        one = _RunningSaga(run, allowed.call, activity_id, saga.saga_steps(allowed.call), carry)
    except ValueError as error:
        outcome, acted = not_run_outcome(allowed.call, str(error)), ()
    else:
        outcome, acted = await _play_saga(one, allowed.spec.max_result_bytes)
    run.change_state(saga.with_saga_end, activity_id, outcome, acted)
    return outcome


async def _play_saga(one: _RunningSaga, max_bytes: int) -> tuple[Outcome, tuple[Outcome, ...]]:
    """Return the outcome of the saga, and those of all its calls."""
    try:
        refusal = saga.saga_problem(one.run.state, one.steps) or await _foreseen_problem(one)
    except Interrupted:
        refusal = saga.INTERRUPTED_TEXT
    if refusal:
        return not_run_outcome(one.call, refusal), ()
    outcomes = await _execute_steps(one)
    undone = await _compensate_steps(one, outcomes)
    outcome = saga_outcome(one.call, SagaCourse(one.steps, outcomes, undone), one.run.setup.tool, max_bytes)
    return outcome, (*outcomes, *undone.values())


async def _foreseen_problem(one: _RunningSaga) -> str:
    """Return why the gate would stop the saga on its way, or "". A saga that could not be undone does not begin.

    Each call is judged again when its turn comes. People are asked for approval only then.
    """
    indexes = range(len(one.steps))
    back = [part for part in map(one.compensation, indexes) if part is not None]
    for parts in ([one.step(index) for index in indexes], back):
        results = await _judge_parts(one, parts) if parts else ()
        for part, result in zip(parts, results, strict=True):
            if result.verdict.decision in {"deny", "invalid"}:
                return saga.foreseen_denial_text(part.place, refused_outcome(part.call, result.verdict))
    return ""


async def _judge_parts(
    one: _RunningSaga, parts: list[_SagaPart], is_cut_short: CutShort | None = None
) -> tuple[gate.GateResult, ...]:
    calls, places = tuple(part.call for part in parts), tuple(part.place for part in parts)
    return await gate.judge_calls(one.run, calls, places, parts[0].purpose, is_cut_short)


async def _execute_steps(one: _RunningSaga) -> tuple[Outcome, ...]:
    """Return the outcomes of the steps that began: up to the first one without success."""
    run, outcomes = one.run, list[Outcome]()
    for index in range(len(one.steps)):
        if run.state.paused:
            await workflow.wait_condition(lambda: not run.state.paused or run.is_interrupted())
        if run.is_interrupted():
            break
        outcomes.append(await _execute_part(one, one.step(index), run.is_interrupted))
        if outcomes[-1].status != "ok":
            break
    return tuple(outcomes)


async def _compensate_steps(one: _RunningSaga, outcomes: tuple[Outcome, ...]) -> dict[int, Outcome]:
    """Return the outcomes of the compensations, by step. If one fails, the others are carried out all the same."""
    undone: dict[int, Outcome] = {}
    grace = one.run.start_background_task(_wait_for_undo_grace(one.run))
    for index in saga.steps_to_compensate(one.steps, outcomes):
        part = one.compensation(index)
        if part is not None:
            undone[index] = await _execute_part(one, part, grace.done)
            cause = saga_stop_text(SagaCourse(one.steps, outcomes))
            one.run.change_state(with_recovery_note, part.call, "compensate", cause, undone[index].status)
    grace.cancel()
    return undone


async def _wait_for_undo_grace(run: Run) -> None:
    """Return when compensations have to end: only after an interruption that lasts for the whole grace."""
    while True:
        await workflow.wait_condition(run.is_interrupted)
        try:
            await workflow.wait_condition(
                lambda: not run.is_interrupted(), timeout=UNDO_GRACE_S, timeout_summary="to take back a saga"
            )
        except TimeoutError:
            run.advance_clock()
            return


async def _execute_part(one: _RunningSaga, part: _SagaPart, is_cut_short: CutShort) -> Outcome:
    """Return the outcome of a part: judged, approved if necessary, carried out."""
    if is_cut_short():
        return not_run_outcome(part.call, saga.INTERRUPTED_TEXT)
    try:
        results = await _judge_parts(one, [part], is_cut_short)
        (result,) = await ask_approval(one.run, results, part.place, part.purpose)
        if part.purpose == "saga":
            result = await confirm_when_resumed(one.run, result)
    except Interrupted:
        return not_run_outcome(part.call, saga.INTERRUPTED_TEXT)
    if result.permitted is None:
        return refused_outcome(part.call, result.verdict)
    if is_cut_short():
        return not_run_outcome(part.call, saga.INTERRUPTED_TEXT)
    return with_argument_change(await _execute_allowed(one, result.permitted, part, is_cut_short), result.verdict)


async def _execute_allowed(one: _RunningSaga, allowed: AllowedCall, part: _SagaPart, is_cut_short: CutShort) -> Outcome:
    spec = saga.saga_part_spec(allowed.spec, one.run.config, part.kind)
    one.run.change_state(saga.with_saga_call, part.kind)
    allowed = allowed._replace(spec=spec)
    task = asyncio.ensure_future(one.carry(one.run, allowed, part.place, is_cut_short))
    await one.run.settle_tasks([task], is_cut_short)
    if is_acting_step(allowed) and not task.done():
        return await _wait_for_cut_step(one.run, task, allowed)
    return task_outcome(task, allowed)


async def _wait_for_cut_step(run: Run, task: asyncio.Task[Outcome], allowed: AllowedCall) -> Outcome:
    """Return the outcome of a step that ignores its cut, because running work cannot be undone yet."""
    try:
        await workflow.wait_condition(task.done, timeout=UNDO_GRACE_S, timeout_summary="for a step of a saga to end")
    except TimeoutError:
        run.advance_clock()
        return task_outcome(task, allowed).with_going_on(True)
    return task_outcome(task, allowed)
