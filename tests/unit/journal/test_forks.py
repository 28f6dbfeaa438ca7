"""A fork takes over some parts of its source run and leaves out others."""

from typing import Any

import pytest

from orga.workflows.decisions.begin import first_state, initial_state
from orga.workflows.decisions.control.interventions import with_abort, with_guidance
from orga.workflows.decisions.conversation import full_digest, message_size
from orga.workflows.decisions.fork import fork_state, with_past
from orga.workflows.types.context import messages_digest
from orga.workflows.types.control import Clock, Intervention, Stop
from orga.workflows.types.conversation import knowledge_message
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.messages import Message
from orga.workflows.types.past import ForkedFrom, ForkInput, parse_fork
from orga.workflows.types.questions import Question
from orga.workflows.types.recall import LOOKUPS_HEADER, Recollection
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.breakers import Breaker
from orga.workflows.types.tool_calls.delegation import Child
from tests.support.values.core import T0, a_setup, a_state, at, conversation_of, user

SOURCE = ForkedFrom(workflow_id="w", run_id="r", iteration=2)


def the_past(**fields: Any) -> AgentState:
    setup = a_setup(instructions="Be long.", config=LoopConfig(max_iterations=9, temperature=0.7))
    past = {"iteration": 2, "setup": setup, "conversation": conversation_of(user("t", pinned=True), user("a"), sent=1)}
    return a_state("t", **(past | fields))


def wanting(task: str | None = None, requeue: tuple[str, ...] = (), **changes: Any) -> ForkInput:
    fork = {"workflow_id": "w", "run_id": "r", "iteration": 2, "requeue": list(requeue)}
    return parse_fork({"fork": fork, **changes, **({} if task is None else {"task": task})})


def started(past: AgentState, fork_input: ForkInput | None = None, seconds: float = 50) -> AgentState:
    """Return the state of the fork after it has read this past through a payload."""
    fork_input = fork_input or wanting()
    first = first_state(fork_input.model_dump(mode="json", exclude_unset=True), None, None, "fork", at(seconds))
    return with_past(first, AgentState.model_validate(past.model_dump(mode="json")))


def forked(past: AgentState, changes: dict[str, Any] | None = None, task: str | None = None) -> AgentState:
    fork_input = wanting(task, **(changes or {}))
    return started(fork_state(past, SOURCE, fork_input, at(5)), fork_input)


def test_recalled_knowledge_is_not_taken_over() -> None:
    messages = user("t", pinned=True), knowledge_message("secret"), user("a")
    past = the_past(conversation=conversation_of(*messages, sent=2))
    fork = forked(past.with_dialogue(recollection=Recollection(terms=("secret",), content="x", items=1)))
    assert [message.text for message in fork.conversation.messages] == ["t", "a"]
    assert fork.conversation.size == sum(map(message_size, fork.conversation.messages))
    assert fork.recollection == Recollection()


LOOKED_UP = user(f"{LOOKUPS_HEADER}\nThe references in the task were looked up", pinned=True)


@pytest.mark.parametrize(
    ("messages", "fields", "left"),
    [
        pytest.param([user("t", pinned=True)], {}, ["new"], id="nothing but the task"),
        pytest.param([user("t", pinned=True), LOOKED_UP], {}, ["new"], id="resolved references of the task"),
        pytest.param(
            [user("t", pinned=True), knowledge_message("fact"), user("be brief")],
            {},
            ["new", "be brief"],
            id="recalled knowledge and guidance",
        ),
        pytest.param(
            [user("older", pinned=True), Message.of("assistant", "42"), user("t", pinned=True)],
            {"iteration": 2, "forked_from": SOURCE},
            ["older", "42", "new"],
            id="the task of an earlier fork that has not begun",
        ),
        pytest.param(
            [user("t", pinned=True), Message.of("assistant", "42")],
            {"iteration": 2, "forked_from": SOURCE},
            ["t", "42", "new"],
            id="an earlier fork without its own task",
        ),
        pytest.param(
            [user("t", pinned=True), LOOKED_UP, Message.of("assistant", "42")],
            {"iteration": 1},
            ["t", LOOKED_UP.text, "42", "new"],
            id="an answered task",
        ),
        pytest.param(
            [user("t", pinned=True), user("[Reply not usable]")],
            {"iteration": 1},
            ["t", "[Reply not usable]", "new"],
            id="a task that a model has seen",
        ),
    ],
)
@pytest.mark.parametrize("sent", [0, 1])
def test_a_new_task_replaces_a_task_that_no_model_has_seen(
    messages: list[Message], fields: dict[str, Any], left: list[str], sent: int
) -> None:
    past = {"conversation": conversation_of(*messages, sent=sent), "hydrated": True, "iteration": 0, **fields}
    fork = forked(the_past(**past), task="new")
    assert [message.text for message in fork.conversation.messages] == left
    assert fork.conversation.digest == messages_digest(fork.conversation.messages)
    assert fork.conversation.size == sum(map(message_size, fork.conversation.messages))
    assert (fork.hydrated, fork.conversation.sent) == (False, len(left))


def test_conversation_and_usage_are_shared() -> None:
    fork = forked(the_past())
    assert fork.conversation.messages == the_past().conversation.messages
    assert fork.conversation.sent == 2
    assert fork.conversation.digest == full_digest(fork.conversation) == messages_digest(fork.conversation.messages)
    assert (fork.iteration, fork.forked_from) == (2, SOURCE)


def test_a_fork_has_its_own_effects_and_clock_and_keeps_the_elapsed_time() -> None:
    fork = forked(the_past(clock=Clock(started_at=T0, stopped_s=1)))
    assert fork.origin == "fork"
    assert fork.clock.elapsed_seconds(at(50)) == 4
    assert fork.clock.elapsed_seconds(at(52)) == 6


def test_a_run_that_ended_paused_has_the_elapsed_time_of_its_pause() -> None:
    assert forked(the_past(clock=Clock(started_at=T0, stopped_at=at(3)))).clock.elapsed_seconds(at(50)) == 3


def test_pending_questions_pauses_and_delegates_are_not_taken_over() -> None:
    fork = forked(
        the_past(
            questions=(Question(question_id="1", kind="escalation", since=T0, text="?"),),
            is_standing=True,
            paused=True,
            aborted="enough",
            stop=Stop("aborted", "enough"),
            children=(Child(workflow_id="c", agent="a", task="t"),),
            breakers={"look": Breaker(state="open", opened_at=T0)},
            doing="acting",
            is_over=True,
        )
    )
    assert (fork.questions, fork.is_standing, fork.paused, fork.aborted, fork.stop, fork.children, fork.breakers) == (
        (),
        False,
        False,
        None,
        None,
        (),
        {},
    )
    assert fork.phase == "preparing"


def test_streaks_that_can_end_a_run_are_reset() -> None:
    """The fork may have another limit or another task."""
    past = the_past(
        over_budget=1, denials={"bad: forbidden": 3}, invalid={"bad: no tool": 3}, repairs=2, critiques={"editor": 2}
    )
    fork = forked(past)
    assert (fork.over_budget, fork.denials, fork.invalid) == (0, {}, {})
    assert (fork.repairs, fork.critiques) == (0, {})


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param(None, ("old half, ", "old half, ", {"n": 42}, ("so far",)), id="the same task keeps it"),
        pytest.param("something else", ("", "", None, ()), id="another task drops it"),
    ],
)
def test_a_partial_answer_is_kept_only_for_the_same_task(
    task: str | None, expected: tuple[str, str, Any, tuple[str, ...]]
) -> None:
    past = the_past(partial="old half, ", output="old half, ", data={"n": 42}, gathered=("so far",))
    fork = forked(past, task=task)
    assert (fork.partial, fork.output, fork.data, fork.gathered) == expected


def test_a_fork_is_prepared_again_with_the_settings_of_its_past() -> None:
    fork = forked(the_past())
    assert fork.setup is None
    assert (fork.input.model, fork.input.instructions) == ("scripted:model", "Be long.")
    assert (fork.config.max_iterations, fork.config.temperature) == (9, 0.7)


def test_raised_limits_stay_raised_unless_they_are_set() -> None:
    past = the_past(extended={"max_iterations": 20, "timeout_s": 900})
    fork = forked(past, {"config": {"timeout_s": 60}})
    assert (fork.config.max_iterations, fork.config.timeout_s, fork.extended) == (20, 60, {})


def test_settings_win_over_the_past_key_by_key() -> None:
    past = the_past(setup=a_setup(config=LoopConfig.model_validate({"recovery": {"max_attempts": 7}})))
    fork = forked(past, {"model": "m:x", "config": {"recovery": {"base_delay_ms": 9}}})
    assert fork.input.model == "m:x"
    assert (fork.config.recovery.max_attempts, fork.config.recovery.base_delay_ms) == (7, 9)


def test_another_agent_uses_its_own_model_and_instructions() -> None:
    fork = forked(the_past(), {"agent": "other"})
    assert (fork.input.agent, fork.input.model, fork.input.instructions) == ("other", None, None)


def test_a_new_task_follows_the_conversation_and_its_references_are_resolved() -> None:
    fork = forked(the_past(hydrated=True), task="and now?")
    assert [message.text for message in fork.conversation.messages] == ["t", "a", "and now?"]
    assert fork.conversation.messages[-1].pinned
    assert (fork.input.task, fork.hydrated, forked(the_past(hydrated=True)).hydrated) == ("and now?", False, True)


OF_THE_PAST: dict[str, Any] = {"forked_from": SOURCE.model_dump()}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(OF_THE_PAST, id="of a fork"),
        pytest.param(OF_THE_PAST | {"carried_by": "r"}, id="of a fork that continues as new"),
        pytest.param(OF_THE_PAST | {"iteration": -1}, id="before its first iteration"),
        pytest.param(OF_THE_PAST | {"iteration": 2**70}, id="far away"),
        pytest.param({"forked_from": "w"}, id="from no object"),
    ],
)
@pytest.mark.parametrize("whole", [True, False], ids=["in a complete state", "alone"])
@pytest.mark.parametrize("before", [None, "", "run 1"], ids=["first", "first, as an empty id", "of a schedule"])
@pytest.mark.parametrize("raw", [{"task": "t"}, None, {"fork": {"workflow_id": "w", "iteration": 2}}])
def test_a_starter_cannot_pass_the_state_of_a_fork(
    raw: object, before: str | None, whole: bool, given: dict[str, Any]
) -> None:
    state = the_past().model_dump(mode="json", exclude_unset=True)
    with pytest.raises(InvalidInput, match="carried state: "):
        first_state(raw, state | given if whole else given, before, "o", T0)


@pytest.mark.parametrize("given", [{"iteration": 5}, {"carried_by": "me"}, {"forked_from": None}, ["forked_from"], 0])
def test_any_other_state_of_a_starter_is_ignored(given: object) -> None:
    assert first_state({"task": "t"}, given, None, "o", T0) == initial_state(AgentInput(task="t"), "o", T0)


def test_signals_to_a_fork_before_it_read_its_past_are_kept() -> None:
    past = the_past(inbox=(Intervention(kind="pause"), Intervention(kind="steer", text="x")), inbox_bytes=1, unheard=2)
    first = first_state({"fork": {"workflow_id": "w", "iteration": 2}}, None, None, "fork", at(50))
    steered = with_guidance(first, Intervention(kind="steer", text="of its own"))
    steered = steered.model_copy(update={"unheard": 3})
    fork = with_past(with_abort(steered, "enough"), fork_state(past, SOURCE, wanting(), at(5)))
    assert [(item.kind, item.text) for item in fork.inbox] == [("steer", "x"), ("steer", "of its own")]
    assert (fork.inbox_bytes, fork.unheard, fork.aborted, fork.fork) == (11, 5, "enough", None)


def test_a_past_that_does_not_match_its_digest_is_refused() -> None:
    past = fork_state(the_past(), SOURCE, wanting(), at(5))
    other = past.conversation.model_copy(update={"messages": (user("t", pinned=True), user("b"))})
    with pytest.raises(InvalidInput, match="does not match its digest"):
        started(past.model_copy(update={"conversation": other}))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        pytest.param({"fork": {"iteration": 2}}, "fork.workflow_id: ", id="without a run"),
        pytest.param({"fork": {"workflow_id": "w"}}, "fork.iteration: ", id="without an iteration"),
        pytest.param({"fork": {"workflow_id": "w", "iteration": -1}}, "fork.iteration: ", id="before its start"),
        pytest.param({"fork": {"workflow_id": "w", "iteration": True}}, "fork.iteration: ", id="a boolean"),
        pytest.param({"fork": {"workflow_id": "w", "iteration": 2**70}}, "fork.iteration: ", id="far away"),
        pytest.param({"fork": {"workflow_id": "w" * 5000, "iteration": 1}}, "fork.workflow_id: ", id="a long name"),
        pytest.param({"fork": {"workflow_id": "w", "iteration": 1, "key": "k"}}, "fork.key: unknown key", id="a key"),
        pytest.param({"fork": "w"}, "fork: ", id="no object"),
        pytest.param({"fork": {"workflow_id": "w", "iteration": 1}, "tenant": "x"}, "tenant: unknown key", id="tenant"),
        pytest.param(
            {"fork": {"workflow_id": "w", "iteration": 1}, "lineage": {"key": "k"}}, "lineage: unknown", id="lineage"
        ),
        pytest.param({"fork": {"workflow_id": "w", "iteration": 1}, "task": " "}, "task: must not", id="no task"),
        pytest.param(
            {"fork": {"workflow_id": "w", "iteration": 1}, "config": {"max_iteration": 3}},
            "config.max_iteration: unknown key",
            id="an unknown setting",
        ),
    ],
)
def test_an_invalid_fork_is_refused_with_its_key(raw: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        first_state(raw, None, None, "o", T0)
    assert says in str(refused.value)
