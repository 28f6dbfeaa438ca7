"""The first state of a run: from what its starter sent, from what the run before it carried, or of a fork."""

from datetime import datetime

from pydantic import ValidationError

from workflows.decisions.conversation import added
from workflows.decisions.forks import forked, is_fork
from workflows.types.delegation import Lineage
from workflows.types.input import AgentInput, InvalidInput, parse_input, problems
from workflows.types.messages import Message
from workflows.types.state import AgentState, Clock, Conversation


def begun(run_input: AgentInput, origin: str, now: datetime) -> AgentState:
    """Return the state of a new run: the task is the first message."""
    task = Message(role="user", text=run_input.task, pinned=True)
    conversation = added(Conversation(), task)
    taint = run_input.lineage.taint
    clock = Clock(started_at=now)
    return AgentState(input=run_input, origin=origin, clock=clock, conversation=conversation, taint=taint)


def effects_origin(lineage: Lineage, origin: str) -> str:
    """Return what idempotency keys build on: of a delegated run the call that it stands for, which outlives a reset."""
    return f"delegated/{lineage.key}" if lineage.key else origin


def first_state(raw: object, given: object, before: str | None, origin: str, now: datetime) -> AgentState:
    """Return the state to start from.

    A state that is `given` beside the input counts only where it was carried over by the run `before`, whose id no
    starter can know, or where it says whose past it shares: a run of a cron schedule, or a retried one, follows another
    too, with whatever arguments its starter chose.

    Raises:
        InvalidInput: With every problem, each naming its key.
    """
    if is_fork(given):
        return forked(given, parse_input(raw), origin, now)
    if given is None or not before:
        run_input = parse_input(raw)
        return begun(run_input, effects_origin(run_input.lineage, origin), now)
    try:
        state = AgentState.model_validate(given)
    except ValidationError as error:
        raise InvalidInput("carried state: " + "; ".join(problems(error))) from None
    if state.carried_by != before:
        raise InvalidInput("carried state: it was not made by the run before; start with the input alone")
    return state
