"""A `decide` call, carried out by the run itself: rules over typed fields and facts."""

from workflows.decisions import deciding
from workflows.decisions.outcomes import not_run
from workflows.phases.gate import AllowedCall
from workflows.phases.run import Run
from workflows.types.outcome import Outcome


def execute_decide(run: Run, permitted: AllowedCall, place: str) -> Outcome:
    """Return the outcome; what decides nothing is told as not run."""
    call = permitted.call
    try:
        name, decided = deciding.decision_of(run.state, call)
    except ValueError as error:
        return not_run(call, str(error))
    run.change(deciding.with_decision, place, name, decided)
    return Outcome(call=call, status="ok", text="").with_words(before=f"[Decided] {name}: {deciding.in_words(decided)}")
