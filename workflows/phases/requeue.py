"""Dead letters that an operator wants sent again: through gate and critics, under the key that they had."""

import asyncio
from dataclasses import replace

from workflows.decisions import recovery
from workflows.decisions.dispatch import with_under_way
from workflows.decisions.outcomes import cancelled, refused, with_change
from workflows.phases import attributes, critique, gate
from workflows.phases.approve import approved
from workflows.phases.calls import carried_out
from workflows.phases.gate import Permitted, Ruling
from workflows.phases.interrupt import settle
from workflows.phases.pace import unpaused
from workflows.phases.resumed import resumed
from workflows.phases.run import Run
from workflows.types.dead_letters import DeadLetter
from workflows.types.outcome import Outcome


async def send_again(run: Run) -> None:
    """Carry out the letters that are requeued, one after the other; the model reads what became of them."""
    for letter in recovery.waiting_letters(run.state):
        await unpaused(run, may_roll_over=True)
        if run.is_interrupted():
            return
        await _send(run, letter)


async def _send(run: Run, letter: DeadLetter) -> None:
    place = f"{letter.letter_id}.q{run.state.iteration}"
    rulings = await gate.judge_calls(run, (letter.call,), (place,), "requeue")
    if rulings is None:
        return
    found = await approved(run, rulings, place, "requeue", may_roll_over=True)
    ruling = await resumed(run, await _reviewed(run, found[0], place))
    if run.is_interrupted():
        return
    run.change(recovery.without_letter, letter.letter_id)
    if ruling.permitted is None:
        outcome = ruling.rejected or refused(letter.call, ruling.verdict)
    else:
        outcome = with_change(await _carried(run, ruling.permitted, place, letter), ruling.verdict)
    run.change(recovery.with_letter_answered, letter, outcome)
    attributes.show_dead_letters(run)


async def _reviewed(run: Run, ruling: Ruling, place: str) -> Ruling:
    """Return the ruling once the critics have seen the call; one that a person held up is judged once more."""
    if ruling.permitted is None or run.is_interrupted():
        return ruling
    stood_still_s = run.state.clock.stopped_s
    if objection := await critique.objection(run, ruling.permitted, place):
        return replace(ruling, permitted=None, rejected=objection)
    if run.state.clock.stopped_s == stood_still_s:
        return ruling
    return await gate.confirm(run, ruling) or ruling


async def _carried(run: Run, permitted: Permitted, place: str, letter: DeadLetter) -> Outcome:
    key = recovery.kept_key(letter, permitted.call)
    run.change(with_under_way, [permitted.call])
    task = asyncio.create_task(carried_out(run, permitted, place, key=key))
    await settle([task], run.is_interrupted)
    return task.result() if task.done() and not task.cancelled() else cancelled(permitted.call, permitted.spec)
