"""Dead letters that an operator wants sent again: through gate and critics, under the key that they had."""

import asyncio
from dataclasses import replace

from workflows.decisions import recovery
from workflows.decisions.dispatch import with_under_way
from workflows.decisions.outcomes import refused, with_change
from workflows.phases import attributes, critique, gate
from workflows.phases.approve import approved
from workflows.phases.attempt import outcome_of
from workflows.phases.calls import carried_out
from workflows.phases.gate import Permitted, Ruling
from workflows.phases.interrupt import settle
from workflows.phases.pace import checkpoint
from workflows.phases.resumed import resumed
from workflows.phases.run import Run
from workflows.types.dead_letters import DeadLetter
from workflows.types.outcome import Outcome


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
    rulings = await gate.judge_calls(run, (letter.call,), (place,), "requeue")
    found = await approved(run, rulings, place, "requeue", may_roll_over=True)
    ruling = await resumed(run, await _reviewed(run, found[0], place))
    run.go_on()
    run.change(recovery.without_letter, letter.letter_id)
    if ruling.permitted is None:
        outcome = ruling.rejected or refused(letter.call, ruling.verdict)
    else:
        outcome = with_change(await _carried(run, ruling.permitted, place, letter), ruling.verdict)
    run.change(recovery.with_letter_answered, letter, outcome)
    attributes.show_dead_letters(run)


async def _reviewed(run: Run, ruling: Ruling, place: str) -> Ruling:
    """Return the ruling once the critics have seen the call; one that a person held up is judged once more."""
    if ruling.permitted is None:
        return ruling
    stood_still_s = run.state.clock.stopped_s
    if objection := await critique.objection(run, ruling.permitted, place):
        return replace(ruling, permitted=None, rejected=objection)
    if run.state.clock.stopped_s == stood_still_s:
        return ruling
    return await gate.confirm(run, ruling)


async def _carried(run: Run, permitted: Permitted, place: str, letter: DeadLetter) -> Outcome:
    key = recovery.kept_key(letter, permitted.call)
    run.change(with_under_way, [permitted.call])
    task = asyncio.create_task(carried_out(run, permitted, place, key=key))
    await settle([task], run.is_interrupted)
    return outcome_of(task, permitted)
