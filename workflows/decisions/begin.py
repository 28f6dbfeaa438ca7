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


def first_state(raw: object, carried: object, before: str | None, origin: str, now: datetime) -> AgentState:
    """Return the state to start from: `carried`, for a run that continued the run `before` as new, else a new one.

    A run of a cron schedule, or a retried one, follows another too, with whatever arguments its starter chose: only a
    state that names the run before it was carried over.

    Raises:
        InvalidInput: With every problem, each naming its key.
    """
    if carried is None:
        return begun(parse_input(raw), origin, now)
    try:
        state = AgentState.model_validate(carried)
    except ValidationError as error:
        raise InvalidInput("carried state: " + "; ".join(problems(error))) from None
    if state.carried_by != before:
        raise InvalidInput("carried state: it was not made by the run before; start with the input alone")
    return state
