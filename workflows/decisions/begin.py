"""The first state of a run, from its starter's input or from the state of the previous segment, and its largest size.

A run carries its input and its setup to its end. It is refused if these, with room for growth, do not fit a payload.
"""

from datetime import datetime
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from orga.workflows.decisions.conversation import attachments_problem, message_json_bytes, with_message
from orga.workflows.decisions.fork import state_before_past
from orga.workflows.decisions.review_stages import STAGE_NEEDS
from orga.workflows.types.control import Clock
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.given_messages import GIVEN_MESSAGES
from orga.workflows.types.input import AgentInput, Lineage, parse_input
from orga.workflows.types.json_text import as_object
from orga.workflows.types.messages import Message
from orga.workflows.types.past import parse_fork
from orga.workflows.types.record import InvalidInput, validation_problems
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.decision import GroundedDecision, ValueKind
from orga.workflows.types.tool_calls.mcp import DEFINITIONS

S = TypeVar("S", bound=AgentState)

BEGIN_BYTES = 800_000
"""Bytes of JSON of everything that is known at the start, and of its growth. The task counts once."""


class NewerState(Exception):
    """The carried state has fields of a newer version. A segment without them would lose their values.

    This error fails the workflow task. The server retries the task until a worker with the newer version takes it.
    """


def is_fork(raw: object) -> bool:
    return as_object(raw).get("fork") is not None


def carried_state_in_input(given: object) -> AgentState | None:
    """Return the second argument of a run as its carried state, or None if it is not one."""
    try:
        return AgentState.model_validate(given)
    except ValidationError:
        return None


def initial_state(run_input: AgentInput, origin: str, now: datetime) -> AgentState:
    """Return the state of a new run. The task is the first message, or follows the messages that the starter gave."""
    given, conversation, taint = run_input.messages, Conversation(), run_input.lineage.taint
    for message in given:
        conversation = with_message(conversation, message.message())
    if not all(message.trusted for message in given):
        taint = tuple(dict.fromkeys((*taint, GIVEN_MESSAGES)))
    task = Message.of("user", run_input.task, pinned=not given, begins_turn=bool(given))
    task = task.with_media(tuple(attachment.part() for attachment in run_input.attachments))
    return AgentState(
        input=run_input.without_messages(),
        origin=origin,
        clock=Clock(started_at=now),
        conversation=with_message(conversation, task),
        taint=taint,
    )


def effects_origin(lineage: Lineage, origin: str) -> str:
    """Return the prefix of idempotency keys. A delegated run uses the key of its call, which survives a reset."""
    return f"delegated/{lineage.key}" if lineage.key else origin


def first_state(
    raw: object, carried: object, before: str | None, origin: str, now: datetime, *, parent: str = ""
) -> AgentState:
    """Return the state to start from. Raise InvalidInput with every problem.

    A `carried` state must name the run `before` as the one that carried it over. No starter can know the id of that
    run. It is not enough that there is a run `before`: cron runs and retried runs have one, too, and their starter
    chose their arguments. Without a run `before`, a carried state is ignored, or refused if it belongs to a fork.

    If there is a lineage, it must name `parent`, the run that started this one according to the server.
    """
    if carried is not None and (before or as_object(carried).get("forked_from")):
        return carried_state(AgentState, carried, before)
    if is_fork(raw):
        return state_before_past(parse_fork(raw), origin, now)
    run_input = parse_input(raw)
    is_set_by_parent = bool(parent) and run_input.lineage.parent == parent
    if run_input.lineage != Lineage() and not is_set_by_parent:
        raise InvalidInput("lineage: only a delegating run can set it; leave it out")
    return initial_state(run_input, effects_origin(run_input.lineage, origin), now)


def carried_state(kind: type[S], carried: object, before: str | None) -> S:
    """Return the state that the run `before` carried over.

    Raises:
        InvalidInput: There is no run `before`, or it did not carry this state over.
        NewerState: It has fields that this version does not know.
    """
    if not before:
        raise InvalidInput("carried state: a starter cannot pass a state; for a fork, set `fork` in the input")
    try:
        state = kind.model_validate(carried)
    except ValidationError as error:
        raise InvalidInput("carried state: " + "; ".join(validation_problems(error))) from None
    if state.carried_by != before:
        raise InvalidInput("carried state: the previous segment did not make it; start with the input alone")
    try:
        return kind.model_validate(carried, extra="forbid")
    except ValidationError as error:
        raise NewerState("; ".join(validation_problems(error))) from None


def with_unpinned_server_taint(state: AgentState) -> AgentState:
    """Return the state tainted by each server with unpinned tools: the model reads that server's definitions."""
    unpinned = [tool for tool in state.tools if tool.digest and not tool.pinned]
    servers = (f"{DEFINITIONS}{tool.name.partition('_')[0]}" for tool in unpinned)
    taint = tuple(dict.fromkeys((*state.taint, *servers)))
    return state if taint == state.taint else state.with_dialogue(taint=taint)


TOOL_BYTES = 240
"""Bytes that a run may record about a tool: its circuit, failures and taint. Its name is added four times."""

NAMED_BYTES = 60
"""Bytes that a stage keeps about each of its items, in addition to the name."""

DECIDED_BYTES = 4_000
"""Bytes of a recorded decision, in addition to its values: rule, declaration, rationale, taint."""

RECALLED_TAINT_BYTES = 32_000
"""Bytes of the names that `with_recalled_taint` may add to the taint."""

VALUE_BYTES = 30
"""Bytes of a value with the JSON around it. The longest text of an enum is added to that."""

_MAX_SHOWN_PARTS = 6


def size_problem(state: AgentState, setup: Setup) -> str:
    """Return why the run is too large to begin, or "". The text names the largest parts and a remedy."""
    attached = [attachment.part() for attachment in state.input.attachments]
    if problem := attachments_problem(attached, setup.config.context_token_budget):
        return problem
    sizes = begin_bytes(state, setup)
    total = sum(sizes.values())
    if total <= BEGIN_BYTES:
        return ""
    by_size = sorted(sizes.items(), key=lambda item: -item[1])
    largest = [f"{name} {size}" for name, size in by_size[:_MAX_SHOWN_PARTS] if size]
    parts = f"tools {len(to_json(setup.tools))}, instructions {len(to_json(setup.instructions))}"
    return (
        f"input and setup have {total} bytes of JSON together, over the limit of {BEGIN_BYTES} that a run can carry on "
        f"({', '.join(largest)}; in the setup: {parts}); put a part of the task or of the facts into a file that the "
        "agent reads, or narrow the tools with tool_profile"
    )


def begin_bytes(state: AgentState, setup: Setup) -> dict[str, int]:
    """Return the bytes of JSON that a run begins with or may gain later, by the name of the part."""
    given, first_message = state.input, state.conversation.messages[:1]
    counted_elsewhere = {"task", "trusted_context", "instructions", "output_schema"}
    decisions = setup.decisions.items()
    return {
        "setup": len(setup.model_dump_json(exclude_unset=True).encode()),
        "task": len(to_json(given.task)),
        "the task before": sum(message_json_bytes(message) for message in first_message if message.text != given.task),
        "room for messages": state.task_bytes,
        "trusted_context": len(to_json(given.trusted_context)),
        "rest of the input": len(given.model_dump_json(exclude_unset=True, exclude=counted_elsewhere).encode()),
        "room for what becomes known of the tools": sum(
            4 * len(to_json(tool.name)) + TOOL_BYTES for tool in setup.tools
        ),
        "room for decisions": sum(len(to_json(name)) + _decision_bytes(decision) for name, decision in decisions),
        **{
            f"room for {part}": sum(NAMED_BYTES + len(item.name) for item in getattr(setup, part))
            for part in STAGE_NEEDS
        },
        "taint": len(to_json(state.taint)),
        "room for the taint of what is recalled": RECALLED_TAINT_BYTES if setup.config.uses_knowledge else 0,
    }


def _decision_bytes(decision: GroundedDecision) -> int:
    fields = sum(len(name) + _max_value_bytes(kind) for name, kind in decision.fields.items())
    facts = sum(len(name) + _max_value_bytes(fact) + len(to_json(fact.source)) for name, fact in decision.facts.items())
    outcomes = [decision.default, *(rule.then for rule in decision.rules)]
    return (
        DECIDED_BYTES
        + fields
        + facts
        + max(len(to_json(outcome)) for outcome in outcomes)
        + max((len(to_json(rule.name)) for rule in decision.rules), default=0)
    )


def _max_value_bytes(kind: ValueKind) -> int:
    return VALUE_BYTES + max((len(to_json(word)) for word in kind.enum), default=0)
