"""The first state of a run, from what its starter sent or from what the run before it carried."""

from datetime import datetime

from pydantic import ValidationError

from workflows.decisions.conversation import added
from workflows.types.input import AgentInput, InvalidInput, parse_input, problems
from workflows.types.messages import Message
from workflows.types.state import AgentState, Clock, Conversation


def begun(run_input: AgentInput, origin: str, now: datetime) -> AgentState:
    """Return the state of a new run: the task is the first message."""
    task = Message(role="user", text=run_input.task, pinned=True)
    conversation = added(Conversation(), task)
    return AgentState(input=run_input, origin=origin, clock=Clock(started_at=now), conversation=conversation)


def first_state(raw: object, carried: object, origin: str, now: datetime) -> AgentState:
    """Return the state to start from: `carried`, for a run that continued as new, else that of a new run.

    Raises:
        InvalidInput: With every problem, each naming its key.
    """
    if carried is None:
        return begun(parse_input(raw), origin, now)
    try:
        return AgentState.model_validate(carried)
    except ValidationError as error:
        raise InvalidInput("carried state: " + "; ".join(problems(error))) from None
