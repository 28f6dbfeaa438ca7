"""One try of an allowed call: an activity, or a run of another agent."""

from workflows.phases.attempt import Failed, Place, attempted
from workflows.phases.delegate import delegated
from workflows.phases.gate import Permitted
from workflows.phases.run import Run
from workflows.types.loop_tools import DELEGATE
from workflows.types.outcome import Outcome


async def tried(run: Run, permitted: Permitted, place: Place) -> Outcome | Failed:
    """Carry the call out once. A tool named `delegate` of an agent without delegates is a tool like others."""
    if permitted.call.name == DELEGATE and run.setup.delegates:
        return await delegated(run, permitted, place)
    return await attempted(run, permitted, place)
