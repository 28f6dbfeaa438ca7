"""Dead letters that an operator wants sent again: through the gate, under the key that they had."""

from workflows.decisions import recovery
from workflows.decisions.outcomes import refused, with_change
from workflows.phases import attributes, gate
from workflows.phases.approve import approved
from workflows.phases.calls import carried_out
from workflows.phases.run import Run
from workflows.types.dead_letters import DeadLetter


async def send_again(run: Run) -> None:
    """Carry out the letters that are requeued, one after the other; the model reads what became of them."""
    for letter in recovery.waiting_letters(run.state):
        if run.is_interrupted():
            return
        await _send(run, letter)


async def _send(run: Run, letter: DeadLetter) -> None:
    rulings = await gate.judge_calls(run, (letter.call,), run.state.iteration, "requeue")
    if rulings is None:
        return
    rulings = await approved(run, rulings, f"{letter.letter_id}.q{run.state.iteration}", "requeue")
    if run.is_interrupted():
        return
    run.change(recovery.without_letter, letter.letter_id)
    permitted, verdict = rulings[0].permitted, rulings[0].verdict
    if permitted is None:
        run.change(recovery.with_letter_answered, letter, refused(letter.call, verdict))
    else:
        place = f"{letter.letter_id}.q{run.state.iteration}"
        outcome = with_change(await carried_out(run, permitted, place, key=letter.key), verdict)
        run.change(recovery.with_letter_answered, letter, outcome)
    attributes.show_dead_letters(run)
