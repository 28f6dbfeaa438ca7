"""The first state of a run: from what its starter sent, what the run before it carried, or another run's past.

What a run begins with and carries ever after, and what may grow with it: refused where no payload could hold it.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import to_json

from orga.workflows.decisions.carried_parts import BEGIN_BYTES
from orga.workflows.decisions.control.interventions import within_inbox
from orga.workflows.decisions.conversation import full_digest, settled, weight_of, with_message, with_messages
from orga.workflows.decisions.recovery import requeued
from orga.workflows.types.control import Clock
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.decision import GroundedDecision, Kind, Rule
from orga.workflows.types.delegation import Lineage
from orga.workflows.types.digest import EMPTY, digest_of
from orga.workflows.types.input import AgentInput, parse_input
from orga.workflows.types.messages import Message
from orga.workflows.types.past import Fork, ForkedFrom, ForkInput, is_fork, parse_fork
from orga.workflows.types.record import InvalidInput, problems
from orga.workflows.types.recovery import DeadLetter
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState

S = TypeVar("S", bound=AgentState)

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
    past = past_of(state, source, _input(state, wish), wish.fork.requeue, ended_at)
    if wish.task is None:
        return past
    asked = with_message(past.conversation, Message.of("user", past.input.task, pinned=True))
    # a new task begins without what was answered to the one before
    return past.with_task(hydrated=False, output="", data=None, gathered=()).with_dialogue(
        conversation=settled(asked), partial=""
    )


def past_of(state: S, source: ForkedFrom, run_input: AgentInput, requeue: Collection[str], ended_at: datetime) -> S:
    """Return what a fork shares whatever it shall do; `run_input` is its own, the rest is as for `fork_of`."""
    return (
        state.with_control(clock=state.clock.with_stopped_at(state.clock.stopped_at or ended_at), carried_by="")
        .with_task(input=run_input, setup=None)
        .with_dialogue(conversation=settled(state.conversation))
        .with_failures(dead_letters=_sent_again(state, requeue))
        .with_family(forked_from=source)
    )


def awaiting_past(wish: ForkInput, origin: str, now: datetime) -> AgentState:
    """Return the first state of a fork, which knows nothing yet but whose past it shares."""
    run_input = AgentInput(task=wish.task or unread_task(wish.fork), config=wish.config)
    return AgentState(input=run_input, origin=origin, clock=Clock(started_at=now), fork=wish)


def unread_task(fork: Fork) -> str:
    """Return what stands for the task of a fork as long as it has not read its past."""
    return f"(goes on from iteration {fork.iteration} of {fork.workflow_id})"


def shared(state: AgentState, past: S) -> S:
    """Return the state of a fork that has read its past: its effects are its own, and it waits for nobody yet.

    What was sent to it meanwhile stays. What was recalled for the other run is not taken over: this one may be
    somebody else's, and recalls by itself.

    Raises:
        InvalidInput: The messages are not those that their digest names.
    """
    conversation = past.conversation
    if digest_of(conversation.messages) != full_digest(conversation):
        raise InvalidInput("fork: the past that was read does not have the digest that it names")
    elapsed = timedelta(seconds=max(past.clock.elapsed_s(state.clock.started_at), 0.0))
    unseen = conversation.with_fields(sent=0, digest=EMPTY, frame=0)
    kept = tuple(message for message in conversation.messages if not message.knowledge)
    guidance = tuple(item for item in past.inbox if item.kind in _GUIDANCE)
    inbox, lost = within_inbox((*guidance, *state.inbox))
    return (
        _of_one_run(past, state)
        .with_control(
            clock=state.clock.with_started_at(state.clock.started_at - elapsed),
            inbox=inbox,
            inbox_bytes=sum(len(item.text.encode()) for item in inbox),
            unheard=past.unheard + state.unheard + lost,
        )
        .with_dialogue(conversation=settled(with_messages(unseen, kept)))
        .with_failures(dead_letters=past.waiting_letters)
    )


def _of_one_run(past: S, own: AgentState) -> S:
    """Return the past with what a run does not share with its forks.

    Its setup is prepared anew: a fork has the tools that its agent lists now. Streaks that end a run begin anew: the
    fork may have other limits.
    """
    return (
        past.with_control(
            origin=own.origin,
            doing=own.doing,
            is_standing=own.is_standing,
            is_over=own.is_over,
            paused=own.paused,
            aborted=own.aborted,
            stop=own.stop,
            questions=own.questions,
            announced=own.announced,
            notes=own.notes,
        )
        .with_task(setup=own.setup, decided=own.decided, undecided=own.undecided)
        .with_dialogue(
            calibration=own.calibration,
            pending=own.pending,
            repairs=own.repairs,
            critiques=own.critiques,
            recollection=own.recollection,
        )
        .with_budget(extended=own.extended, over_budget=own.over_budget)
        .with_failures(breakers=own.breakers, results=own.results, denials=own.denials, invalid=own.invalid)
        .with_family(children=own.children, told_held=own.told_held, fork=None)
    )


def _sent_again(state: AgentState, requeue: Collection[str]) -> tuple[DeadLetter, ...]:
    state = state.with_failures(dead_letters=tuple(letter.with_requeued(False) for letter in state.dead_letters))
    try:
        for letter_id in requeue:
            state = requeued(state, letter_id)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    return state.waiting_letters


def _input(state: AgentState, wish: ForkInput) -> AgentInput:
    """Return the input of the fork: what its past was prepared with, under what is given anew."""
    raw: dict[str, Any] = state.input.model_dump(mode="json", exclude_unset=True)
    changes = wish.changes
    if state.setup is not None and "agent" not in changes:
        raw |= state.setup.model_dump(mode="json", include={"model", "instructions"})
        raw["config"] = state.config.model_dump(mode="json", warnings=False)
    if state.setup is not None and state.setup.output_schema is not None:
        raw["output_schema"] = state.setup.output_schema
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


class NewerState(Exception):
    """The run before this one was of a version that knows more: going on without that would lose it.

    It fails the workflow task, which is tried again until a worker of such a version takes it.
    """


def begun(run_input: AgentInput, origin: str, now: datetime) -> AgentState:
    """Return the state of a new run: the task is the first message."""
    task = Message.of("user", run_input.task, pinned=True)
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
        return carried_state(AgentState, given, before)
    if is_fork(raw):
        return awaiting_past(parse_fork(raw), origin, now)
    run_input = parse_input(raw)
    if run_input.lineage != Lineage() and (not parent or run_input.lineage.parent != parent):
        raise InvalidInput("lineage: only a run that delegates can give one")
    return begun(run_input, effects_origin(run_input.lineage, origin), now)


def _is_forked(given: object) -> bool:
    return isinstance(given, dict) and bool(cast("dict[str, object]", given).get("forked_from"))


def carried_state(kind: type[S], given: object, before: str | None) -> S:
    """Return the state that the run `before` carried over.

    Raises:
        InvalidInput: It is none, or another made it.
        NewerState: It says more than this version knows.
    """
    if not before:
        raise InvalidInput("carried state: no run takes a state from its starter; a fork is an input with a `fork`")
    try:
        state = kind.model_validate(given)
    except ValidationError as error:
        raise InvalidInput("carried state: " + "; ".join(problems(error))) from None
    if state.carried_by != before:
        raise InvalidInput("carried state: it was not made by the run before; start with the input alone")
    try:
        return kind.model_validate(given, extra="forbid")
    except ValidationError as error:
        raise NewerState("; ".join(problems(error))) from None


TOOL_BYTES = 240
"""Of what a run may know of a tool beside its name, which stands there four times: circuit, failures, taint."""

CRITIC_BYTES = 60
DECIDED_BYTES = 4_000
"""Of a decision that was made, beside its values: rule, declaration, rationale, taint."""

RECALLED_TAINT_BYTES = 32_000
"""Of the names that `with_recalled_taint` takes over."""

VALUE_BYTES = 30
"""Of a number, and of what stands around a value."""

_SHOWN = 6


def size_problem(state: AgentState, setup: Setup) -> str:
    """Return why the run cannot begin with all this, or "": each part with its bytes of JSON, and what to do."""
    sizes = begin_bytes(state, setup)
    total = sum(sizes.values())
    if total <= BEGIN_BYTES:
        return ""
    parts = {"tools": len(to_json(setup.tools)), "instructions": len(to_json(setup.instructions))}
    largest = [f"{name} {size}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:_SHOWN] if size]
    parts = f"tools {len(to_json(setup.tools))}, instructions {len(to_json(setup.instructions))}"
    return (
        f"input and setup have {total} bytes of JSON together, over the limit of {BEGIN_BYTES} that a run can carry on "
        f"({', '.join(largest)}; in the setup: {parts}); put a part of the task or of the facts into a file that the "
        "agent reads, or narrow the tools with tool_profile"
    )


def begin_bytes(state: AgentState, setup: Setup) -> dict[str, int]:
    """Return the bytes of JSON of all that a run begins with, and of what may grow with it, by name."""
    given, first = state.input, state.conversation.messages[:1]
    apart = {"task", "trusted_context", "instructions", "output_schema"}
    return {
        "setup": len(setup.model_dump_json(exclude_unset=True).encode()),
        "task": len(to_json(given.task)),
        "the task before": sum(weight_of(message) for message in first if message.text != given.task),
        "trusted_context": len(to_json(given.trusted_context)),
        "rest of the input": len(given.model_dump_json(exclude_unset=True, exclude=apart).encode()),
        "room for what becomes known of the tools": sum(4 * len(to_json(t.name)) + TOOL_BYTES for t in setup.tools),
        "room for decisions": sum(len(to_json(name)) + _made(each) for name, each in setup.decisions.items()),
        "room for critics": sum(CRITIC_BYTES + len(critic.name) for critic in setup.critics),
        "taint": len(to_json(state.taint)),
        "room for the taint of what is recalled": RECALLED_TAINT_BYTES if setup.config.uses_knowledge else 0,
    }


def _made(decision: GroundedDecision) -> int:
    """Return the bytes that the decision may take once it is made."""
    given = sum(len(name) + _value(kind) for name, kind in decision.fields.items())
    facts = sum(len(name) + _value(fact) + len(to_json(fact.source)) for name, fact in decision.facts.items())
    outcomes = [decision.default, *(rule.then for rule in decision.rules)]
    return DECIDED_BYTES + given + facts + max(len(to_json(outcome)) for outcome in outcomes) + _rule(decision.rules)


def _value(kind: Kind) -> int:
    return VALUE_BYTES + max((len(to_json(word)) for word in kind.enum), default=0)


def _rule(rules: tuple[Rule, ...]) -> int:
    return max((len(to_json(rule.name)) for rule in rules), default=0)
