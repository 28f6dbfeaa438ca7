"""One allowed call, carried out to its outcome."""

from workflows.decisions.idempotency import idempotency_key
from workflows.decisions.outcomes import failed
from workflows.phases.attempt import Failed, Place, attempted
from workflows.phases.gate import Permitted
from workflows.phases.run import Run
from workflows.types.outcome import Outcome


async def carried_out(run: Run, permitted: Permitted, activity_id: str, key: str | None = None) -> Outcome:
    """Return the outcome of the call, whatever happened to it.

    Args:
        run: The run.
        permitted: What the gate allowed.
        activity_id: `<iteration>.<index>`; iteration 0 stands for what comes before the first reasoning step.
        key: Idempotency key, where the call has one already.
    """
    place = Place(activity_id, key or idempotency_key(run.state.origin, activity_id, permitted.call))
    attempt = await attempted(run, permitted, place)
    if isinstance(attempt, Failed):
        return failed(permitted.call, attempt.error, is_unknown=attempt.is_unknown)
    return attempt
