"""Continue-as-new: when it happens, and that nothing is lost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.begin import NewerState, first_state
from orga.workflows.decisions.continue_as_new import MAX_CARRIED_BYTES, can_continue_as_new, continue_as_new_state
from orga.workflows.decisions.control.interventions import should_continue_as_new, with_pause
from orga.workflows.decisions.conversation import full_digest, reference_and_seen
from orga.workflows.types.control import Stop
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.messages import Message
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.delegation import Child
from tests.support.values.core import ORIGIN, T0, a_call, a_setup, a_state, at, conversation_of, user
from tests.support.values.strategies import LAW, messages

SETUP = a_setup(roll_over_events=3_500, roll_over_bytes=3_000_000)


@pytest.mark.parametrize(
    ("events", "history_bytes", "suggested", "expected"),
    [
        pytest.param(0, 0, False, False, id="a short history"),
        pytest.param(3_499, 2_999_999, False, False, id="just below both limits"),
        pytest.param(3_500, 0, False, True, id="enough events"),
        pytest.param(0, 3_000_000, False, True, id="enough bytes"),
        pytest.param(0, 0, True, True, id="the server suggests it"),
    ],
)
def test_continue_as_new_is_due_at_these_limits(
    events: int, history_bytes: int, suggested: bool, expected: bool
) -> None:
    state = a_state(setup=SETUP)
    assert (should_continue_as_new(state, events, history_bytes, suggested) and can_continue_as_new(state)) is expected


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"stop": Stop("completed")}, id="the ending is decided"),
        pytest.param({"aborted": "stop it"}, id="the run was aborted"),
        pytest.param({"children": (Child(workflow_id="c", agent="a", task="t"),)}, id="a delegate has not ended"),
        pytest.param({"partial": "x" * MAX_CARRIED_BYTES}, id="a continued answer is too long to be carried"),
        pytest.param(
            {"conversation": Conversation(messages=(user("x" * MAX_CARRIED_BYTES),))},
            id="the state is too large",
        ),
    ],
)
def test_a_run_does_not_continue_as_new_in_these_cases(fields: dict[str, Any]) -> None:
    state = a_state(setup=SETUP, **fields)
    assert not (should_continue_as_new(state, 10_000, 10_000_000, True) and can_continue_as_new(state))


def over_the_wire(state: AgentState) -> AgentState:
    sent = continue_as_new_state(state, "run 1").model_dump(mode="json", exclude_unset=True)
    return first_state(None, sent, "run 1", "run 2", at(99))


@LAW
@given(st.lists(messages, max_size=6), st.integers(0, 6))
def test_the_next_segment_starts_with_the_whole_state(earlier: list[Message], sent: int) -> None:
    conversation = conversation_of(user("task"), *earlier, sent=min(sent, len(earlier)))
    state = with_pause(a_state(conversation=conversation, iteration=7, denials={"a: b": 2}, setup=SETUP), at(5))
    after = over_the_wire(state)
    assert after.conversation.messages == state.conversation.messages
    assert full_digest(after.conversation) == full_digest(state.conversation)
    assert after.model_dump(exclude={"conversation", "carried_by"}) == state.model_dump(
        exclude={"conversation", "carried_by"}
    )


def test_no_reference_points_to_the_history_that_ends() -> None:
    context, _ = reference_and_seen(
        over_the_wire(a_state(conversation=conversation_of(user("a"), user("b")))).conversation
    )
    assert context.news == ()


def test_the_origin_and_the_clock_are_those_of_the_first_run() -> None:
    after = over_the_wire(a_state())
    assert (after.origin, after.clock.started_at) == (ORIGIN, T0)


def test_an_unreadable_state_fails_the_run_instead_of_blocking_it() -> None:
    with pytest.raises(InvalidInput, match="carried state: clock: Field required"):
        first_state(None, {"input": {"task": "t"}, "origin": "o"}, "run 1", "o", T0)


@pytest.mark.parametrize("by", [pytest.param("", id="by no run"), pytest.param("run 7", id="by another run")])
def test_a_state_that_the_previous_segment_did_not_carry_is_refused(by: str) -> None:
    """A cron run follows another with any arguments of its starter, so a forged state must not count."""
    forged = continue_as_new_state(a_state(setup=SETUP), by).model_dump(mode="json", exclude_unset=True)
    with pytest.raises(InvalidInput, match="the previous segment did not make it"):
        first_state(None, forged, "run 1", ORIGIN, T0)


@pytest.mark.parametrize("place", [(), ("setup",), ("conversation",), ("setup", "config")])
@pytest.mark.parametrize("by", ["run 1", "run 7"])
def test_fields_of_a_newer_version_are_never_dropped(place: tuple[str, ...], by: str) -> None:
    """A forged state of a starter is refused as such and does not block the run."""
    sent: Any = continue_as_new_state(a_state(setup=SETUP), by).model_dump(mode="json", exclude_unset=True)
    inner = sent
    for key in place:
        inner = inner.setdefault(key, {})
    inner["from_the_future"] = 1
    refused = pytest.raises(NewerState, match="from_the_future: unknown key")
    with refused if by == "run 1" else pytest.raises(InvalidInput):
        first_state(None, sent, "run 1", ORIGIN, T0)


def test_a_new_run_starts_with_the_task_pinned() -> None:
    state = first_state({"task": "count"}, None, None, ORIGIN, T0)
    assert state.conversation.messages == (user("count", pinned=True),)
    assert (state.origin, state.clock.started_at, state.iteration) == (ORIGIN, T0, 0)


def test_calls_are_carried_with_their_arguments() -> None:
    call = a_call(path="é", limit=1.0, deep={"a": [None, True]})
    state = a_state(conversation=conversation_of(Message.of("assistant", calls=(call,))))
    assert over_the_wire(state).conversation.messages[0].calls == (call,)
