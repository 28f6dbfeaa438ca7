"""A fork: a new run that shares the past of another, and nothing of what that one still waits for."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

from pydantic import ValidationError

from workflows.decisions.conversation import added, settled, with_messages
from workflows.decisions.recovery import requeued, waiting_letters
from workflows.types.dead_letters import DeadLetter
from workflows.types.digest import EMPTY
from workflows.types.input import AgentInput, InvalidInput, parse_input, problems
from workflows.types.messages import Message
from workflows.types.state import AgentState, Clock, ForkedFrom

_OF_ONE_RUN = (
    *("origin", "phase", "setup", "extended", "calibration"),
    *("waits", "announced", "paused", "aborted", "stop", "children", "notes", "rewound"),
    *("breakers", "results"),
    *("decided", "undecided", "told_held"),
    *("over_budget", "denials", "repairs", "critiques"),
)
"""What a run does not share with its forks. Its setup is prepared anew: a starter that could send one could give itself
tools that the agent does not list. Streaks that end a run begin anew: the fork may have other limits."""

_UNANSWERED: dict[str, Any] = {"partial": "", "output": "", "data": None}
"""A new task begins without what was answered to the one before."""

_GUIDANCE = frozenset({"steer", "add_context"})


def fork_of(
    state: AgentState,
    source: ForkedFrom,
    *,
    changes: Mapping[str, Any],
    task: str | None,
    ended_at: datetime,
    requeue: Collection[str] = (),
) -> AgentState:
    """Return the state that a fork starts with.

    Args:
        state: Of the other run, at the end of the iteration.
        source: Where it is from.
        changes: Keys of the input that are other in the fork; those of `config` one by one.
        task: What the fork shall do, asked behind the conversation so far.
        ended_at: When that iteration had ended; the clock goes on from there.
        requeue: Dead letters that the fork sends again, under the keys that they had; the others stay behind.

    Raises:
        InvalidInput: With every problem, each naming its key.
    """
    run_input = _input(state, changes, task)
    conversation = state.conversation
    if task is not None:
        conversation = added(conversation, Message(role="user", text=run_input.task, pinned=True))
    return state.model_copy(
        update={
            "input": run_input,
            "setup": None,
            "conversation": settled(conversation),
            "clock": state.clock.model_copy(update={"stopped_at": state.clock.stopped_at or ended_at}),
            "hydrated": state.hydrated and task is None,
            "dead_letters": _sent_again(state, requeue),
            "forked_from": source,
            "carried_by": "",
            **({} if task is None else _UNANSWERED),
        }
    )


def is_fork(given: object) -> bool:
    """Return whether this is a state that a starter may send: one that says which run's past it shares."""
    if not isinstance(given, dict):
        return False
    state = cast("dict[str, Any]", given)
    return bool(state.get("forked_from")) and not state.get("carried_by")


def forked(given: object, run_input: AgentInput, origin: str, now: datetime) -> AgentState:
    """Return the first state of a fork: its effects are its own, and it waits for nobody yet.

    Raises:
        InvalidInput: It is no state.
    """
    try:
        return _rebased(AgentState.model_validate(given), run_input, origin, now)
    except ValidationError as error:
        raise InvalidInput("forked state: " + "; ".join(problems(error))) from None
    except (ValueError, TypeError, OverflowError) as error:  # times without a zone, numbers without an end
        raise InvalidInput(f"forked state: {error}") from None


def _rebased(state: AgentState, run_input: AgentInput, origin: str, now: datetime) -> AgentState:
    elapsed_s = max(state.clock.elapsed_s(now), 0.0)
    fresh = AgentState(input=run_input, origin=origin, clock=Clock(started_at=now - timedelta(seconds=elapsed_s)))
    unseen = state.conversation.model_copy(update={"sent": 0, "digest": EMPTY, "frame": 0})
    return state.model_copy(
        update={
            **{key: getattr(fresh, key) for key in ("input", "clock", *_OF_ONE_RUN)},
            "dead_letters": waiting_letters(state),
            "inbox": tuple(item for item in state.inbox if item.kind in _GUIDANCE),
            "conversation": settled(with_messages(unseen, unseen.messages)),
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


def _input(state: AgentState, changes: Mapping[str, Any], task: str | None) -> AgentInput:
    """Return the input of the fork: what its past was prepared with, under what is given anew."""
    raw: dict[str, Any] = state.input.model_dump(mode="json", exclude_unset=True)
    if state.setup is not None and "agent" not in changes:
        raw |= state.setup.model_dump(mode="json", include={"model", "instructions"})
        raw["config"] = state.config.model_dump(mode="json", warnings=False)
    config = _over(raw.get("config", {}), changes.get("config") or {})
    return parse_input(raw | dict(changes) | {"config": config} | ({} if task is None else {"task": task}))


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables merged, key by key."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = _over(cast("dict[str, Any]", under), cast("dict[str, Any]", value)) if both else value
    return merged
