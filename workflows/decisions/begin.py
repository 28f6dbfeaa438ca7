"""The first state of a run: from what its starter sent, or from what the run before it carried."""

from datetime import datetime
from typing import cast

from pydantic import ValidationError

from workflows.decisions.conversation import with_message
from workflows.decisions.forks import awaiting_past
from workflows.types.delegation import Lineage
from workflows.types.fork import is_fork, parse_fork
from workflows.types.input import AgentInput, InvalidInput, parse_input, problems
from workflows.types.messages import Message
from workflows.types.state import AgentState, Clock, Conversation


class NewerState(Exception):
    """The run before this one was of a version that knows more: going on without that would lose it.

    It fails the workflow task, which is tried again until a worker of such a version takes it.
    """


def begun(run_input: AgentInput, origin: str, now: datetime) -> AgentState:
    """Return the state of a new run: the task is the first message."""
    task = Message(role="user", text=run_input.task, pinned=True)
    conversation = with_message(Conversation(), task)
    taint = run_input.lineage.taint
    clock = Clock(started_at=now)
    return AgentState(input=run_input, origin=origin, clock=clock, conversation=conversation, taint=taint)


def effects_origin(lineage: Lineage, origin: str) -> str:
    """Return what idempotency keys build on: of a delegated run the call that it stands for, which outlives a reset."""
    return f"delegated/{lineage.key}" if lineage.key else origin


def first_state(
    raw: object, given: object, before: str | None, origin: str, now: datetime, *, parent: str = ""
) -> AgentState:
    """Return the state to start from.

    A state that is `given` beside the input counts only where it was carried over by the run `before`, whose id no
    starter can know: a run of a cron schedule, or a retried one, follows another too, with whatever arguments its
    starter chose. Else it is ignored, but for one that says whose past it shares: that was a fork once, and is refused.
    A lineage counts only where the server says that this `parent` started the run.

    Raises:
        InvalidInput: With every problem, each naming its key.
    """
    if given is not None and (before or _is_forked(given)):
        return _carried(given, before)
    if is_fork(raw):
        return awaiting_past(parse_fork(raw), origin, now)
    run_input = parse_input(raw)
    if run_input.lineage != Lineage() and (not parent or run_input.lineage.parent != parent):
        raise InvalidInput("lineage: only a run that delegates can give one")
    return begun(run_input, effects_origin(run_input.lineage, origin), now)


def _is_forked(given: object) -> bool:
    return isinstance(given, dict) and bool(cast("dict[str, object]", given).get("forked_from"))


def _carried(given: object, before: str | None) -> AgentState:
    if not before:
        raise InvalidInput("carried state: no run takes a state from its starter; a fork is an input with a `fork`")
    try:
        state = AgentState.model_validate(given)
    except ValidationError as error:
        raise InvalidInput("carried state: " + "; ".join(problems(error))) from None
    if state.carried_by != before:
        raise InvalidInput("carried state: it was not made by the run before; start with the input alone")
    try:
        return AgentState.model_validate(given, extra="forbid")
    except ValidationError as error:
        raise NewerState("; ".join(problems(error))) from None
