"""Act: runs the allowed calls in parallel. A tool's call is an activity named after the tool.

It also sends dead letters that an operator requeued, through the gate and with their original idempotency keys.
A `saga` call carries out its steps in order, each through the gate. If one fails, the finished ones are compensated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from temporalio import workflow

from orga.workflows.decisions.control.questions import build_question
from orga.workflows.decisions.observe import termination_text, with_outcomes, with_termination
from orga.workflows.decisions.result import with_shown_calls
from orga.workflows.decisions.tool_calls import decision, recovery, repeated_calls, saga
from orga.workflows.decisions.tool_calls.calls import (
    idempotency_key,
    not_run_outcome,
    with_argument_change,
)
from orga.workflows.decisions.tool_calls.decision import undecided_text, with_undecided_end
from orga.workflows.decisions.tool_calls.dispatch import unstarted_outcomes, with_attempts, with_begun_calls
from orga.workflows.decisions.tool_calls.recovery import with_recovery_note, with_succeeded_call
from orga.workflows.decisions.tool_calls.saga import SagaCourse, saga_outcome, saga_stop_text
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run, show_dead_letters, show_first_calls
from orga.workflows.phases.attempt import CallIdentity, FailedCall, is_acting_step, task_outcome
from orga.workflows.phases.control.ask_people import ask_for_answer
from orga.workflows.phases.control.run import CutShort, Interrupted, are_done
from orga.workflows.phases.control.visibility import enter_phase, pause_checkpoint, phase_span
from orga.workflows.phases.critics import call_objection
from orga.workflows.phases.delegation import execute_tool_call
from orga.workflows.phases.gate import AllowedCall, GatedReply, GateResult, permitted_calls
from orga.workflows.phases.recovery import recover_call
from orga.workflows.phases.review_stages import ask_approval, confirm_results_if_paused, confirm_when_resumed
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.names import STOPPED_STEPS_COUNTED
from orga.workflows.types.tool_calls.gate import Purpose
from orga.workflows.types.tool_calls.loop_tools import ASK_USER, DECIDE, SAGA, TERMINATE, SagaStep, loop_tool
from orga.workflows.types.tool_calls.recovery import DeadLetter, Outcome


async def execute_reply(run: Run, gated: GatedReply, phase: str) -> tuple[Outcome, ...]:
    """Carry out the allowed calls of a reply, at most `max_concurrent_tools` at a time. The state gets the outcomes.

    Return one outcome for each call of the reply, in call order, whatever happens.
    """
    verdicts = tuple(each.verdict for each in gated.results)
    run.change_state(with_shown_calls, gated.reply.calls, verdicts)
    enter_phase(run, phase)
    show_first_calls(run)
    iteration = run.state.iteration
    with phase_span("act", iteration):
        gated = gated.with_rejections(unstarted_outcomes(run.state, gated.allowed))
        run.result_bytes = 0
        run.change_state(with_begun_calls, list(gated.allowed.values()))
        tasks = {
            index: asyncio.create_task(execute_call(run, allowed, f"{iteration}.{index}"))
            for index, allowed in permitted_calls(gated.results).items()
        }
        await _settle_calls(run, gated, tasks)
        outcomes = tuple(_reply_outcome(result, tasks.get(index)) for index, result in enumerate(gated.results))
    denied = repeated_calls.refusal_names(outcomes, verdicts, "denied")
    invalid = repeated_calls.invalidity_names(outcomes, verdicts)
    if repeated_calls.has_only_stopped_calls(outcomes) and workflow.patched(STOPPED_STEPS_COUNTED):
        invalid.append(repeated_calls.ONLY_STOPPED_CALLS)  # counted like the repetition of an invalid call
    run.change_state(with_outcomes, gated.reply, outcomes, denied, invalid)
    run.change_state(with_attempts, outcomes, run.now)
    return outcomes


async def _settle_calls(run: Run, gated: GatedReply, tasks: Mapping[int, asyncio.Task[Outcome]]) -> None:
    """Wait until the calls have ended. An interruption cancels all but sagas, which undo their work themselves."""
    sagas = [task for index, task in tasks.items() if loop_tool(gated.results[index].call.name).is_saga]
    if tasks:
        await run.settle_tasks([task for task in tasks.values() if task not in sagas], run.is_interrupted)
    if sagas:
        await workflow.wait_condition(lambda: are_done(sagas))


def _reply_outcome(result: GateResult, task: asyncio.Task[Outcome] | None) -> Outcome:
    if task is not None and result.permitted is not None:
        return with_argument_change(task_outcome(task, result.permitted), result.verdict)
    return result.refusal


async def execute_call(
    run: Run,
    allowed: AllowedCall,
    activity_id: str,
    is_cut_short: CutShort | None = None,
    *,
    key: str | None = None,
) -> Outcome:
    """Return the outcome of the call, whatever happened to it.

    Args:
        is_cut_short: Returns True once the call has to end. None: `run.is_interrupted`.
        key: The call's idempotency key. None: the key is made from its activity id.
    """
    if handler := LOOP_TOOL_HANDLERS.get(allowed.call.name):
        return await handler(run, allowed, activity_id)
    call_key = key or idempotency_key(run.state.origin, activity_id, allowed.call)
    identity = CallIdentity(activity_id, call_key, is_cut_short or run.is_interrupted)
    attempt = await execute_tool_call(run, allowed, identity)
    if isinstance(attempt, FailedCall):
        return await recover_call(run, allowed, identity, attempt)
    if attempt.status == "ok":
        run.change_state(with_succeeded_call, allowed.spec, allowed.call, attempt.text, run.now)
    return attempt


async def send_requeued_letters(run: Run) -> None:
    """Carry out the requeued dead letters one by one. If this raises Interrupted, unsent letters are kept."""
    for letter in run.state.waiting_letters:
        await pause_checkpoint(run, may_continue_as_new=True)
        await _send_letter(run, letter)


async def _send_letter(run: Run, letter: DeadLetter) -> None:
    place = f"{letter.letter_id}.q{run.state.iteration}"
    results = await gate.judge_calls(run, (letter.call,), (place,), "requeue")
    found = await ask_approval(run, results, place, "requeue", may_continue_as_new=True)
    result = await confirm_when_resumed(run, await _review_letter(run, found[0], place))
    run.raise_if_interrupted()
    run.change_state(recovery.without_letter, letter.letter_id)
    if result.permitted is None:
        outcome = result.refusal
    else:
        outcome = with_argument_change(await _execute_letter(run, result.permitted, place, letter), result.verdict)
    run.change_state(recovery.with_letter_answered, letter, outcome)
    show_dead_letters(run)


async def _review_letter(run: Run, result: GateResult, activity_id: str) -> GateResult:
    """Return the result after the critics. If people held up the call, it is judged once more."""
    if result.permitted is None:
        return result
    paused_before_s = run.paused_seconds()
    if objection := await call_objection(run, result.permitted, activity_id):
        return result.with_rejection(objection)
    (result,) = await confirm_results_if_paused(run, (result,), paused_before_s)
    return result


async def _execute_letter(run: Run, allowed: AllowedCall, activity_id: str, letter: DeadLetter) -> Outcome:
    key = recovery.kept_idempotency_key(letter, allowed.call)
    run.change_state(with_begun_calls, [allowed.call])
    task = asyncio.create_task(execute_call(run, allowed, activity_id, key=key))
    await run.settle_tasks([task], run.is_interrupted)
    return task_outcome(task, allowed)


UNDO_GRACE_S = 60.0
"""Seconds that compensations have after an interruption, because an abort must not leave half a saga.

A running step that ignores its cancellation first has the same time to end.
"""


class _SagaPart(NamedTuple):
    """A step, or its compensation."""

    place: str
    """The saga's place with `.s1` for its second step, or `.c1` for that step's compensation."""
    call: ToolCall
    purpose: Purpose
    kind: str
    """The kind of the step, or `compensation`."""


class _RunningSaga(NamedTuple):
    """One saga of a run. It takes no slot itself. Its calls take slots one after the other."""

    run: Run
    call: ToolCall
    place: str
    steps: tuple[SagaStep, ...]

    def step(self, index: int) -> _SagaPart:
        step, place = self.steps[index], f"{self.place}.s{index}"
        return _SagaPart(place, saga.part_call(self.call, place, step), "saga", step.kind)

    def compensation(self, index: int) -> _SagaPart | None:
        action, place = self.steps[index].compensation, f"{self.place}.c{index}"
        if action is None:
            return None
        return _SagaPart(place, saga.part_call(self.call, place, action), "compensation", "compensation")


async def execute_saga(run: Run, allowed: AllowedCall, activity_id: str) -> Outcome:
    """Return one outcome for the whole saga. A saga handles interruptions itself, so its task must not be cancelled.

    If the saga fails, it is compensated. The recovery settings of its tools apply only to its calls.
    """
    try:
        ongoing = _RunningSaga(run, allowed.call, activity_id, saga.saga_steps(allowed.call))
    except ValueError as error:
        outcome, parts = not_run_outcome(allowed.call, str(error)), ()
    else:
        outcome, parts = await _carry_out_saga(ongoing, allowed.spec.max_result_bytes)
    run.change_state(saga.with_saga_end, activity_id, outcome, parts)
    return outcome


async def _carry_out_saga(ongoing: _RunningSaga, max_bytes: int) -> tuple[Outcome, tuple[Outcome, ...]]:
    """Return the outcome of the saga, and those of all its steps and compensations."""
    try:
        refusal = saga.saga_problem(ongoing.run.state, ongoing.steps) or await _foreseen_problem(ongoing)
    except Interrupted:
        refusal = saga.INTERRUPTED_TEXT
    if refusal:
        return not_run_outcome(ongoing.call, refusal), ()
    outcomes = await _execute_steps(ongoing)
    undone = await _compensate_steps(ongoing, outcomes)
    outcome = saga_outcome(ongoing.call, SagaCourse(ongoing.steps, outcomes, undone), ongoing.run.setup.tool, max_bytes)
    return outcome, (*outcomes, *undone.values())


async def _foreseen_problem(ongoing: _RunningSaga) -> str:
    """Return why the gate would refuse a step or a compensation, or "". A saga with such a problem does not begin.

    Each call is judged again when its turn comes. People are asked for approval only then.
    """
    indexes = range(len(ongoing.steps))
    compensations = [part for part in map(ongoing.compensation, indexes) if part is not None]
    for parts in ([ongoing.step(index) for index in indexes], compensations):
        results = await _judge_parts(ongoing, parts) if parts else ()
        for part, result in zip(parts, results, strict=True):
            if result.verdict.decision in {"deny", "invalid"}:
                return saga.foreseen_denial_text(part.place, result.refusal)
    return ""


async def _judge_parts(
    ongoing: _RunningSaga, parts: list[_SagaPart], is_cut_short: CutShort | None = None
) -> tuple[gate.GateResult, ...]:
    calls, places = tuple(part.call for part in parts), tuple(part.place for part in parts)
    return await gate.judge_calls(ongoing.run, calls, places, parts[0].purpose, is_cut_short)


async def _execute_steps(ongoing: _RunningSaga) -> tuple[Outcome, ...]:
    """Return the outcomes of the steps that began, up to the first step that did not succeed."""
    run, outcomes = ongoing.run, list[Outcome]()
    for index in range(len(ongoing.steps)):
        await run.wait_until_resumed()
        if run.is_interrupted():
            break
        outcomes.append(await _execute_part(ongoing, ongoing.step(index), run.is_interrupted))
        if outcomes[-1].status != "ok":
            break
    return tuple(outcomes)


async def _compensate_steps(ongoing: _RunningSaga, outcomes: tuple[Outcome, ...]) -> dict[int, Outcome]:
    """Return the outcomes of the compensations by the index of their step. A failed one does not stop the others."""
    undone: dict[int, Outcome] = {}
    undo_grace = ongoing.run.start_background_task(_wait_for_undo_grace(ongoing.run))
    for index in saga.steps_to_compensate(ongoing.steps, outcomes):
        part = ongoing.compensation(index)
        if part is not None:
            undone[index] = await _execute_part(ongoing, part, undo_grace.done)
            cause = saga_stop_text(SagaCourse(ongoing.steps, outcomes))
            ongoing.run.change_state(with_recovery_note, part.call, "compensate", cause, undone[index].status)
    undo_grace.cancel()
    return undone


async def _wait_for_undo_grace(run: Run) -> None:
    """Wait until compensations have to end, because the run has been interrupted for `UNDO_GRACE_S`."""
    while True:
        await workflow.wait_condition(run.is_interrupted)
        try:
            await workflow.wait_condition(
                lambda: not run.is_interrupted(), timeout=UNDO_GRACE_S, timeout_summary="to take back a saga"
            )
        except TimeoutError:
            run.advance_clock()
            return


async def _execute_part(ongoing: _RunningSaga, part: _SagaPart, is_cut_short: CutShort) -> Outcome:
    if is_cut_short():
        return not_run_outcome(part.call, saga.INTERRUPTED_TEXT)
    try:
        results = await _judge_parts(ongoing, [part], is_cut_short)
        (result,) = await ask_approval(ongoing.run, results, part.place, part.purpose)
        if part.purpose == "saga":
            result = await confirm_when_resumed(ongoing.run, result)
    except Interrupted:
        return not_run_outcome(part.call, saga.INTERRUPTED_TEXT)
    if result.permitted is None:
        return result.refusal
    if is_cut_short():
        return not_run_outcome(part.call, saga.INTERRUPTED_TEXT)
    return with_argument_change(await _execute_allowed(ongoing, result.permitted, part, is_cut_short), result.verdict)


async def _execute_allowed(
    ongoing: _RunningSaga, allowed: AllowedCall, part: _SagaPart, is_cut_short: CutShort
) -> Outcome:
    spec = saga.saga_part_spec(allowed.spec, ongoing.run.config, part.kind)
    ongoing.run.change_state(saga.with_saga_call, part.kind)
    allowed = allowed._replace(spec=spec)
    task = asyncio.create_task(execute_call(ongoing.run, allowed, part.place, is_cut_short))
    await ongoing.run.settle_tasks([task], is_cut_short)
    if is_acting_step(allowed) and not task.done():
        return await _wait_for_cut_step(ongoing.run, task, allowed)
    return task_outcome(task, allowed)


async def _wait_for_cut_step(run: Run, task: asyncio.Task[Outcome], allowed: AllowedCall) -> Outcome:
    """Wait for a step that ignores its cancellation, because running work cannot be undone. Return its outcome."""
    try:
        await workflow.wait_condition(task.done, timeout=UNDO_GRACE_S, timeout_summary="for a step of a saga to end")
    except TimeoutError:
        run.advance_clock()
        return task_outcome(task, allowed).with_going_on(True)
    return task_outcome(task, allowed)


async def _end_run(run: Run, allowed: AllowedCall, _: str) -> Outcome:
    """End the run, or let it continue if the model has not yet made a decision that is due."""
    if undecided := run.state.due_decisions:
        run.change_state(with_undecided_end)
        feedback = f"[Not ended] {undecided_text(undecided)}"
        return Outcome(call=allowed.call, status="ok", text="").with_own_text(before=feedback)
    arguments = allowed.call.arguments
    run.change_state(with_termination, str(arguments.get("reason", "")), str(arguments.get("output", "")))
    return Outcome(call=allowed.call, status="ok", text="").with_own_text(before=termination_text(run.state))


async def _decide(run: Run, allowed: AllowedCall, activity_id: str) -> Outcome:
    """Return the outcome. A call without a valid decision has the outcome "not run"."""
    call = allowed.call
    try:
        name, decided = decision.decision_of_call(run.state, call)
    except ValueError as error:
        return not_run_outcome(call, str(error))
    run.change_state(decision.with_decision, activity_id, name, decided)
    return Outcome(call=call, status="ok", text="").with_own_text(
        before=f"[Decided] {name}: {decision.decision_text(decided)}"
    )


async def _ask_user(run: Run, allowed: AllowedCall, activity_id: str) -> Outcome:
    """Return a person's answer. If the run ends before there is one, the outcome is "not run"."""
    call, given = allowed.call, allowed.call.arguments
    options, default = given.get("options", ()), given.get("default", "")
    if options and default and default not in options:
        return not_run_outcome(call, "default: give one of the options")
    question = build_question(
        activity_id,
        str(given["question"]),
        run.now,
        activity_id=activity_id,
        options=options,
        default=default,
        expires_s=given.get("expires_s"),
    )
    try:
        decided = await ask_for_answer(run, question)
    except Interrupted:
        return not_run_outcome(call, "the run ended before anybody answered")
    if decided.choice == "skip":
        why = decided.reason or "the operator gives no answer"
        return Outcome(call=call, status="ok", text="").with_own_text(before=f"[No answer] {why}; go on without.")
    has_expired = not decided.by and bool(decided.reason)
    how = f"[Default answer: {decided.reason}]" if has_expired else "[Answer of the operator]"
    return Outcome(call=call, status="ok", text=decided.result).with_own_text(before=f"{how}\n")


LoopToolHandler = Callable[[Run, AllowedCall, str], Awaitable[Outcome]]

LOOP_TOOL_HANDLERS: Mapping[str, LoopToolHandler] = {
    TERMINATE: _end_run,
    DECIDE: _decide,
    ASK_USER: _ask_user,
    SAGA: execute_saga,
}
