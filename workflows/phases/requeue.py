"""Dead letters that an operator wants sent again: through the gate, under the key that they had."""

import asyncio

from workflows.decisions import recovery
from workflows.decisions.outcomes import cancelled, refused, with_change
from workflows.phases import attributes, gate
from workflows.phases.approve import approved
from workflows.phases.calls import carried_out
from workflows.phases.gate import Permitted
from workflows.phases.interrupt import settle
from workflows.phases.pace import unpaused
from workflows.phases.resumed import resumed
from workflows.phases.run import Run
from workflows.types.dead_letters import DeadLetter
from workflows.types.outcome import Outcome


async def send_again(run: Run) -> None:
    """Carry out the letters that are requeued, one after the other; the model reads what became of them."""
    for letter in recovery.waiting_letters(run.state):
        await unpaused(run)
        if run.is_interrupted():
            return
        await _send(run, letter)


async def _send(run: Run, letter: DeadLetter) -> None:
    rulings = await gate.judge_calls(run, (letter.call,), run.state.iteration, "requeue")
    if rulings is None:
        return
    place = f"{letter.letter_id}.q{run.state.iteration}"
    ruling = await resumed(run, (await approved(run, rulings, place, "requeue"))[0])
    if run.is_interrupted():
        return
    run.change(recovery.without_letter, letter.letter_id)
    if ruling.permitted is None:
        outcome = refused(letter.call, ruling.verdict)
    else:
        outcome = with_change(await _carried(run, ruling.permitted, place, letter), ruling.verdict)
    run.change(recovery.with_letter_answered, letter, outcome)
    attributes.show_dead_letters(run)


async def _carried(run: Run, permitted: Permitted, place: str, letter: DeadLetter) -> Outcome:
    key = recovery.kept_key(letter, permitted.call)
    task = asyncio.create_task(carried_out(run, permitted, place, key=key))
    await settle([task], run.is_interrupted)
    return task.result() if task.done() and not task.cancelled() else cancelled(permitted.call, permitted.spec)
