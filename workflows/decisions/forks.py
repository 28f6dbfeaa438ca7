"""A fork: a new run that shares the past of another, and nothing of what that one still waits for."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

from workflows.decisions.conversation import full_digest, settled, with_message, with_messages
from workflows.decisions.recovery import requeued, waiting_letters
from workflows.types.dead_letters import DeadLetter
from workflows.types.digest import EMPTY, digest_of
from workflows.types.fork import ForkInput
from workflows.types.input import AgentInput, InvalidInput, parse_input
from workflows.types.messages import Message
from workflows.types.state import AgentState, Clock, ForkedFrom

_OF_ONE_RUN = (
    *("origin", "phase", "setup", "extended", "calibration"),
    *("waits", "holds", "announced", "pending", "paused", "aborted", "stop", "children", "notes"),
    *("breakers", "results"),
    *("decided", "undecided", "told_held"),
    *("over_budget", "denials", "invalid", "repairs", "critiques"),
)
"""What a run does not share with its forks. Its setup is prepared anew: a fork has the tools that its agent lists now.
Streaks that end a run begin anew: the fork may have other limits."""

_UNANSWERED: dict[str, Any] = {"partial": "", "output": "", "data": None, "gathered": ()}
"""A new task begins without what was answered to the one before."""

_GUIDANCE = frozenset({"steer", "add_context"})


def fork_of(state: AgentState, source: ForkedFrom, wish: ForkInput, ended_at: datetime) -> AgentState:
    """Return the past that a fork shares, for `shared`.

    Args:
        state: Of the other run, at the end of the iteration.
        source: Where it is from.
        wish: What is other in the fork. Dead letters that it does not name stay behind.
        ended_at: When that iteration had ended; the clock goes on from there.

    Raises:
        InvalidInput: With every problem, each naming its key.
    """
    run_input = _input(state, wish)
    conversation = state.conversation
    if wish.task is not None:
        conversation = with_message(conversation, Message(role="user", text=run_input.task, pinned=True))
    return state.model_copy(
        update={
            "input": run_input,
            "setup": None,
            "conversation": settled(conversation),
            "clock": state.clock.model_copy(update={"stopped_at": state.clock.stopped_at or ended_at}),
            "hydrated": state.hydrated and wish.task is None,
            "dead_letters": _sent_again(state, wish.fork.requeue),
            "forked_from": source,
            "carried_by": "",
            **({} if wish.task is None else _UNANSWERED),
        }
    )


def awaiting_past(wish: ForkInput, origin: str, now: datetime) -> AgentState:
    """Return the first state of a fork, which knows nothing yet but whose past it shares."""
    named = f"(goes on from iteration {wish.fork.iteration} of {wish.fork.workflow_id})"
    run_input = AgentInput(task=wish.task or named, config=wish.config)
    return AgentState(input=run_input, origin=origin, clock=Clock(started_at=now), fork=wish)


def shared(state: AgentState, past: AgentState) -> AgentState:
    """Return the state of a fork that has read its past: its effects are its own, and it waits for nobody yet.

    What was sent to it meanwhile stays.

    Raises:
        InvalidInput: The messages are not those that their digest names.
    """
    conversation = past.conversation
    if digest_of(conversation.messages) != full_digest(conversation):
        raise InvalidInput("fork: the past that was read does not have the digest that it names")
    elapsed = timedelta(seconds=max(past.clock.elapsed_s(state.clock.started_at), 0.0))
    unseen = conversation.model_copy(update={"sent": 0, "digest": EMPTY, "frame": 0})
    guidance = tuple(item for item in past.inbox if item.kind in _GUIDANCE)
    return past.model_copy(
        update={
            **{key: getattr(state, key) for key in _OF_ONE_RUN},
            "clock": state.clock.model_copy(update={"started_at": state.clock.started_at - elapsed}),
            "dead_letters": waiting_letters(past),
            "inbox": (*guidance, *state.inbox),
            "inbox_bytes": past.inbox_bytes + state.inbox_bytes,
            "unheard": past.unheard + state.unheard,
            "conversation": settled(with_messages(unseen, unseen.messages)),
            "fork": None,
        }
    )


def _sent_again(state: AgentState, requeue: Collection[str]) -> tuple[DeadLetter, ...]:
    none = tuple(letter.model_copy(update={"requeued": False}) for letter in state.dead_letters)
    state = state.model_copy(update={"dead_letters": none})
    try:
        for letter_id in requeue:
            state = requeued(state, letter_id)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    return waiting_letters(state)


def _input(state: AgentState, wish: ForkInput) -> AgentInput:
    """Return the input of the fork: what its past was prepared with, under what is given anew."""
    raw: dict[str, Any] = state.input.model_dump(mode="json", exclude_unset=True)
    changes = wish.changes
    if state.setup is not None and "agent" not in changes:
        raw |= state.setup.model_dump(mode="json", include={"model", "instructions"})
        raw["config"] = state.config.model_dump(mode="json", warnings=False)
    config = _over(raw.get("config", {}), changes.get("config") or {})
    task: dict[str, Any] = {} if wish.task is None else {"task": wish.task}
    return parse_input(raw | changes | {"config": config} | task)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables merged, key by key."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = _over(cast("dict[str, Any]", under), cast("dict[str, Any]", value)) if both else value
    return merged
