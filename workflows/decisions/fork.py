"""The state of a fork: the past that it takes from another run, and where it continues."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from orga.workflows.decisions.control.interventions import within_inbox
from orga.workflows.decisions.conversation import (
    full_digest,
    with_all_as_base,
    with_message,
    with_messages,
    without_recall_block,
)
from orga.workflows.decisions.tool_calls.recovery import with_requeued_letter
from orga.workflows.types.context import EMPTY_DIGEST, messages_digest
from orga.workflows.types.control import Clock
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.input import AgentInput, parse_input
from orga.workflows.types.messages import Message
from orga.workflows.types.past import Fork, ForkedFrom, ForkInput
from orga.workflows.types.recall import LOOKUPS_HEADER
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.recovery import DeadLetter

S = TypeVar("S", bound=AgentState)

_GUIDANCE = frozenset({"steer", "add_context"})


def fork_state(state: AgentState, source: ForkedFrom, fork_input: ForkInput, ended_at: datetime) -> AgentState:
    """Return the past that a fork of an agent's run begins with. `with_past` adds it to the state of the fork.

    Raise InvalidInput with every problem.

    Args:
        state: State of the other run at the end of the iteration.
        fork_input: The differences in the fork. Only the dead letters that it names are taken over.
        ended_at: When that iteration ended. The clock continues from there.
    """
    past = shared_past(state, source, _fork_input(state, fork_input), fork_input.fork.requeue, ended_at)
    if fork_input.task is None:
        return past
    # a new task begins without the answer to the previous one
    return past.with_task(hydrated=False, output="", data=None, gathered=()).with_dialogue(
        conversation=_with_task(past, state, fork_input.task), partial=""
    )


def _with_task(past: AgentState, state: AgentState, task: str) -> Conversation:
    """Return the past followed by a new task. If the old task has no reply yet, replace it, and drop its lookups."""
    conversation, old_task = past.conversation, state.input.task
    messages = conversation.messages
    indexes = [i for i, m in enumerate(messages) if (m.pinned or m.begins_turn) and m.text == old_task]
    task_index = indexes[-1] if indexes else 0
    new_task = messages[task_index].with_text(task) if indexes else Message.of("user", task, pinned=True)
    later = messages[task_index + 1 :]
    began_at = state.forked_from.iteration if state.forked_from else 0
    has_reply = state.iteration > began_at or any(message.role == "assistant" or message.summary for message in later)
    if has_reply:
        return with_all_as_base(with_message(conversation, new_task))
    kept = (message for message in later if not (message.pinned and message.text.startswith(LOOKUPS_HEADER)))
    fresh = conversation.with_fields(sent=0, digest=EMPTY_DIGEST)
    return with_all_as_base(with_messages(fresh, (*messages[:task_index], new_task, *kept)))


def shared_past(state: S, source: ForkedFrom, run_input: AgentInput, requeue: Collection[str], ended_at: datetime) -> S:
    """Return the past with which a fork of any run begins, with `run_input` as its input.

    It has no recalled knowledge: the fork may belong to somebody else, so it recalls again. The other arguments are
    those of `fork_state`.
    """
    return (
        state.with_control(clock=state.clock.with_stopped_at(state.clock.stopped_at or ended_at), carried_by="")
        .with_task(input=run_input, setup=None)
        .with_dialogue(conversation=with_all_as_base(without_recall_block(state.conversation)))
        .with_failures(dead_letters=_requeued_letters(state, requeue))
        .with_family(forked_from=source)
    )


def state_before_past(fork_input: ForkInput, origin: str, now: datetime) -> AgentState:
    """Return the first state of a fork. It names the other run, and the past is read later."""
    run_input = AgentInput(task=fork_input.task or unread_task_text(fork_input.fork), config=fork_input.config)
    return AgentState(input=run_input, origin=origin, clock=Clock(started_at=now), fork=fork_input)


def unread_task_text(fork: Fork) -> str:
    return f"(continues from iteration {fork.iteration} of {fork.workflow_id})"


def with_past(state: AgentState, past: S) -> S:
    """Return the state of a fork that has read its past. It has its own idempotency keys, and no open question.

    Guidance that arrived before the past was read stays. The messages of the past do not change, because folds of the
    history take them from there. Raise InvalidInput if they do not match their digest.
    """
    conversation = past.conversation
    if messages_digest(conversation.messages) != full_digest(conversation):
        raise InvalidInput("fork: the past that was read does not match its digest")
    elapsed = timedelta(seconds=max(past.clock.elapsed_seconds(state.clock.started_at), 0.0))
    guidance = tuple(item.without_sender() for item in past.inbox if item.kind in _GUIDANCE)
    inbox, lost = within_inbox((*guidance, *state.inbox))
    return (
        _without_run_specifics(past, state)
        .with_control(
            clock=state.clock.with_started_at(state.clock.started_at - elapsed),
            inbox=inbox,
            inbox_bytes=sum(len(item.text.encode()) for item in inbox),
            unheard=past.unheard + state.unheard + lost,
        )
        .with_dialogue(conversation=with_all_as_base(conversation.with_fields(frame=0)))
        .with_failures(dead_letters=past.waiting_letters)
    )


def _without_run_specifics(past: S, own: AgentState) -> S:
    """Return the past without the parts that a run does not share with its forks.

    The setup is prepared again, so a fork has the tools that its agent lists now. Streaks that end a run start from
    zero, because the fork may have other limits.
    """
    return (
        past.with_control(
            origin=own.origin,
            doing=own.doing,
            is_standing=own.is_standing,
            is_over=own.is_over,
            intervention_ids=own.intervention_ids,
            pauses=own.pauses,
            paused=own.paused,
            aborted=own.aborted,
            stop=own.stop,
            questions=own.questions,
            completions=own.completions,
            announced=own.announced,
            notes=own.notes,
        )
        .with_task(setup=own.setup, decided=own.decided, undecided=own.undecided)
        .with_reply_counts_of(own)
        .with_dialogue(calibration=own.calibration, pending=own.pending, recollection=own.recollection)
        .with_budget(extended=own.extended, over_budget=own.over_budget)
        .with_failures(breakers=own.breakers, results=own.results, denials=own.denials, invalid=own.invalid)
        .with_family(children=own.children, told_held=own.told_held, fork=None)
    )


def _requeued_letters(state: AgentState, requeue: Collection[str]) -> tuple[DeadLetter, ...]:
    state = state.with_failures(dead_letters=tuple(letter.with_requeued(False) for letter in state.dead_letters))
    try:
        for letter_id in requeue:
            state = with_requeued_letter(state, letter_id)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    return state.waiting_letters


def _fork_input(state: AgentState, fork_input: ForkInput) -> AgentInput:
    """Return the input of the fork: the settings of its past, overridden by those that are given."""
    raw: dict[str, Any] = state.input.model_dump(mode="json", exclude_unset=True)
    changes = fork_input.changes
    if state.setup is not None and "agent" not in changes:
        raw |= state.setup.model_dump(mode="json", include={"model", "instructions"})
        raw["config"] = state.config.model_dump(mode="json", warnings=False)
    if state.setup is not None and state.setup.output_schema is not None:
        raw["output_schema"] = state.setup.output_schema
    config = _merged_tables(raw.get("config", {}), changes.get("config") or {})
    task: dict[str, Any] = {} if fork_input.task is None else {"task": fork_input.task}
    return parse_input(raw | changes | {"config": config} | task)


def _merged_tables(table: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(table)
    for key, value in overrides.items():
        old = merged.get(key)
        are_tables = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = (
            _merged_tables(cast("dict[str, Any]", old), cast("dict[str, Any]", value)) if are_tables else value
        )
    return merged
