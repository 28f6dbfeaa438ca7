"""Dead letters that an operator wants sent again: through gate and stages, under the key that they had."""

import asyncio

from orga.workflows.decisions import recovery
from orga.workflows.decisions.dispatch import with_under_way
from orga.workflows.decisions.outcomes import refused, with_change
from orga.workflows.phases import gate, stages
from orga.workflows.phases.act import execute_call
from orga.workflows.phases.attempt import outcome_of
from orga.workflows.phases.control.pace import checkpoint
from orga.workflows.phases.control.run import settle
from orga.workflows.phases.gate import AllowedCall, GateResult
from orga.workflows.phases.questions import ask_approval, confirm_when_resumed
from orga.workflows.phases.run import Run, show_dead_letters
from orga.workflows.types.recovery import DeadLetter, Outcome


async def send_again(run: Run) -> None:
    """Carry out the letters that are requeued, one after the other; the model reads what became of them.

    Raises:
        Interrupted: The run is to end; letters that were not sent are kept.
    """
    for letter in recovery.waiting_letters(run.state):
        await checkpoint(run, may_roll_over=True)
        await _send(run, letter)


async def _send(run: Run, letter: DeadLetter) -> None:
    place = f"{letter.letter_id}.q{run.state.iteration}"
    results = await gate.judge_calls(run, (letter.call,), (place,), "requeue")
    found = await ask_approval(run, results, place, "requeue", may_roll_over=True)
    result = await confirm_when_resumed(run, await _passed(run, found[0], place))
    run.raise_if_interrupted()
    run.change(recovery.without_letter, letter.letter_id)
    if result.permitted is None:
        outcome = result.rejected or refused(letter.call, result.verdict)
    else:
        outcome = with_change(await _carried(run, result.permitted, place, letter), result.verdict)
    run.change(recovery.with_letter_answered, letter, outcome)
    show_dead_letters(run)


async def _passed(run: Run, result: GateResult, place: str) -> GateResult:
    """Return the result once the stages have let the call pass; one that a person held up is judged once more."""
    if result.permitted is None:
        return result
    stood_still_s = run.state.clock.stopped_s
    if objection := await stages.objection(run, result.permitted, place):
        return result._replace(permitted=None, rejected=objection)
    if run.state.clock.stopped_s == stood_still_s:
        return result
    return await gate.confirm(run, result)


async def _carried(run: Run, permitted: AllowedCall, place: str, letter: DeadLetter) -> Outcome:
    key = recovery.kept_key(letter, permitted.call)
    run.change(with_under_way, [permitted.call])
    task = asyncio.create_task(execute_call(run, permitted, place, key=key))
    await settle([task], run.is_interrupted)
    return outcome_of(task, permitted)
