"""One try of an allowed call: an activity, or a run of another agent."""

from workflows.phases.attempt import Failed, Place, execute_attempt
from workflows.phases.delegate import execute_delegate
from workflows.phases.gate import AllowedCall
from workflows.phases.run import Run
from workflows.types.loop_tools import DELEGATE
from workflows.types.outcome import Outcome


async def execute_once(run: Run, permitted: AllowedCall, place: Place) -> Outcome | Failed:
    """Carry the call out once. A tool named `delegate` of an agent without delegates is a tool like others."""
    if permitted.call.name == DELEGATE and run.setup.delegates:
        return await execute_delegate(run, permitted, place)
    return await execute_attempt(run, permitted, place)
