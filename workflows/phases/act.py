"""Act: the allowed calls run in parallel, each an activity whose type is the tool's name.

So are dead letters that an operator wants sent again under the key that they had: each passes the gate like any call.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from temporalio import workflow

from orga.workflows.decisions import recovery, steps
from orga.workflows.decisions.calls import idempotency_key, refused, with_change
from orga.workflows.decisions.dispatch import unstarted, with_attempts, with_under_way
from orga.workflows.decisions.observe import with_outcomes
from orga.workflows.decisions.recovery import with_success
from orga.workflows.decisions.result import with_calls
from orga.workflows.phases import gate, stages
from orga.workflows.phases.attempt import Failed, Place, outcome_of
from orga.workflows.phases.control.pace import checkpoint, enter, phase_span
from orga.workflows.phases.control.run import CutShort
from orga.workflows.phases.gate import AllowedCall, Gated, GateResult
from orga.workflows.phases.loop_tools import BY_THE_LOOP
from orga.workflows.phases.questions import ask_approval, confirm_when_resumed
from orga.workflows.phases.recovery import execute_once, recover
from orga.workflows.phases.run import Run, show_dead_letters, show_first_calls
from orga.workflows.phases.saga import execute_saga
from orga.workflows.types.loop_tools import SAGA, loop_tool
from orga.workflows.types.messages import Reply
from orga.workflows.types.recovery import DeadLetter, Outcome
from orga.workflows.types.versions import STOPPED_STEPS_COUNTED


class Acted(NamedTuple):
    """A reply with one outcome for each of its calls, in call order."""

    reply: Reply
    results: tuple[GateResult, ...]
    outcomes: tuple[Outcome, ...]


async def execute_reply(run: Run, gated: Gated, doing: str) -> Acted:
    """Carry out what the gate allowed of a reply, and take in what comes of it."""
    run.change(with_calls, gated.reply.calls, [each.verdict for each in gated.results])
    enter(run, doing)
    show_first_calls(run)
    with phase_span("act", run.state.iteration):
        acted = await run_tools(run, gated)
    verdicts = tuple(each.verdict for each in acted.results)
    denied = steps.repeated(acted.outcomes, verdicts, "denied")
    invalid = steps.invalid_calls(acted.outcomes, verdicts)
    if steps.is_all_stopped(acted.outcomes) and workflow.patched(STOPPED_STEPS_COUNTED):
        invalid.append(steps.NOTHING_BUT_STOPPED)
    run.change(with_outcomes, acted.reply, acted.outcomes, denied, invalid)
    run.change(with_attempts, acted.outcomes, run.now)
    return acted


async def run_tools(run: Run, gated: Gated) -> Acted:
    """Run what the gate allowed, at most `max_concurrent_tools` at a time; answer every call whatever happens."""
    iteration = run.state.iteration
    run.brought = 0
    places = [index for index, result in enumerate(gated.results) if result.permitted is not None]
    down = unstarted(run.state, gated.allowed)
    outcomes = {places[nth]: outcome for nth, outcome in down.items()}
    begun = [call for nth, call in enumerate(gated.allowed) if nth not in down]
    run.change(with_under_way, begun)
    tasks: dict[int, asyncio.Task[Outcome]] = {}
    for index, result in enumerate(gated.results):
        if result.permitted is not None and index not in outcomes:
            tasks[index] = asyncio.create_task(execute_call(run, result.permitted, f"{iteration}.{index}"))
    plans = [task for index, task in tasks.items() if loop_tool(gated.results[index].call.name).is_plan]
    if tasks:
        await run.settle([task for task in tasks.values() if task not in plans], run.is_interrupted)
    if plans:  # they see an interruption by themselves, and need the time to take back what they did
        await workflow.wait_condition(lambda: all(task.done() for task in plans))
    for index, result in enumerate(gated.results):
        if index in tasks and result.permitted is not None:
            outcomes[index] = with_change(outcome_of(tasks[index], result.permitted), result.verdict)
        elif index not in outcomes:
            outcomes[index] = result.rejected or refused(result.call, result.verdict)
    return Acted(gated.reply, gated.results, tuple(outcomes[index] for index in range(len(gated.results))))


async def execute_call(
    run: Run,
    permitted: AllowedCall,
    activity_id: str,
    is_cut_short: CutShort | None = None,
    *,
    key: str | None = None,
) -> Outcome:
    """Return the outcome of the call, whatever happened to it.

    Args:
        run: The run.
        permitted: What the gate allowed.
        activity_id: `<iteration>.<index>`; iteration 0 stands for what comes before the first reasoning step.
        is_cut_short: Whether the call has to end; None is with the run.
        key: Idempotency key, where the call has one already.
    """
    if by_the_loop := _BY_THE_LOOP.get(permitted.call.name):
        return await by_the_loop(run, permitted, activity_id)
    known = key or idempotency_key(run.state.origin, activity_id, permitted.call)
    place = Place(activity_id, known, is_cut_short)
    attempt = await execute_once(run, permitted, place)
    if isinstance(attempt, Failed):
        return await recover(run, permitted, place, attempt)
    if attempt.status == "ok":
        run.change(with_success, permitted.spec, permitted.call, attempt.text, run.now)
    return attempt


async def _play(run: Run, permitted: AllowedCall, place: str) -> Outcome:
    return await execute_saga(run, permitted, place, execute_call)


_BY_THE_LOOP = {**BY_THE_LOOP, SAGA: _play}
"""A saga makes calls, which are carried out here."""


async def send_again(run: Run) -> None:
    """Carry out the letters that are requeued, one after the other; the model reads what became of them.

    Raises:
        Interrupted: The run is to end; letters that were not sent are kept.
    """
    for letter in run.state.waiting_letters:
        await checkpoint(run, may_roll_over=True)
        await _send(run, letter)


async def _send(run: Run, letter: DeadLetter) -> None:
    place = f"{letter.letter_id}.q{run.state.iteration}"
    results = await gate.judge_calls(run, (letter.call,), (place,), "requeue")
    found = await ask_approval(run, results, place, "requeue", may_roll_over=True)
    result = await confirm_when_resumed(run, await _pass_stages(run, found[0], place))
    run.raise_if_interrupted()
    run.change(recovery.without_letter, letter.letter_id)
    if result.permitted is None:
        outcome = result.rejected or refused(letter.call, result.verdict)
    else:
        outcome = with_change(await _execute_letter(run, result.permitted, place, letter), result.verdict)
    run.change(recovery.with_letter_answered, letter, outcome)
    show_dead_letters(run)


async def _pass_stages(run: Run, result: GateResult, place: str) -> GateResult:
    """Return the result once the stages have let the call pass; one that a person held up is judged once more."""
    if result.permitted is None:
        return result
    since_s = run.held_up_s()
    if objection := await stages.objection(run, result.permitted, place):
        return result._replace(permitted=None, rejected=objection)
    (result,) = await stages.confirm_held_up(run, (result,), since_s)
    return result


async def _execute_letter(run: Run, permitted: AllowedCall, place: str, letter: DeadLetter) -> Outcome:
    key = recovery.kept_key(letter, permitted.call)
    run.change(with_under_way, [permitted.call])
    task = asyncio.create_task(execute_call(run, permitted, place, key=key))
    await run.settle([task], run.is_interrupted)
    return outcome_of(task, permitted)
