"""The parts that a session carries into its next segment, and the parts that are cut."""

import pytest
from pydantic_core import from_json, to_json

from orga.workflows.decisions.compaction import messages_to_drop
from orga.workflows.decisions.continue_as_new import continue_as_new_state, shrunk_conversation
from orga.workflows.decisions.sessions.messages import (
    MAX_QUEUED_MESSAGES,
    with_sent_message,
)
from orga.workflows.decisions.sessions.turns import (
    MAX_RESULTS,
    RESULTS_BYTES,
    find_turn_result,
    first_session,
    with_bounded_results,
    with_turn_ended,
)
from orga.workflows.types.control import Stop
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.messages import Message, ToolCall, range_indexes
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.sessions.session import SESSION_BYTES, SessionState
from orga.workflows.types.sessions.session_input import MAX_MESSAGE_BYTES
from tests.support.values.core import T0, at, conversation_of, user
from tests.support.values.sessions import a_session, says, session_in_turn


def largest() -> SessionState:
    state = a_session()
    for number in range(MAX_RESULTS + 5):
        state = session_in_turn(state, f"m{number}").with_task(output='"' * 590_000)
        state = with_turn_ended(state, Stop("error", "\x00" * 5_000), at(number))
    for number in range(MAX_QUEUED_MESSAGES):
        state = with_sent_message(state, says("q" * 2_900, message_id=f"{number}".ljust(100, "x")))
    for number in range(100):
        state = with_sent_message(
            state.with_session(queue=state.session.queue[:19]), says(message_id=f"z{number}".ljust(100, "x"))
        )
    return state


def test_the_session_fields_fit_their_share_of_the_payload() -> None:
    """The newest answer is kept whole while there is room. It is cut only if the state is too large."""
    state = largest()
    assert len(state.session.results[-1].output) == 590_000
    light = with_bounded_results(state)
    assert sum(len(to_json(each.model_dump(mode="json"))) for each in light.session.results) <= RESULTS_BYTES
    own = len(light.session.model_dump_json(exclude_unset=True).encode())
    assert own <= SESSION_BYTES
    assert state.task_bytes == SESSION_BYTES + 2 * MAX_MESSAGE_BYTES


def test_a_session_is_carried_unchanged_and_cannot_be_forged() -> None:
    state = with_sent_message(session_in_turn(a_session(idle_timeout_s=9.0)), says("second"))
    sent = from_json(continue_as_new_state(state, "run 1").model_dump_json(exclude_unset=True))
    after = first_session(None, sent, "run 1", "run 2", at(99))
    assert (after.session, after.idle_timeout_s, after.input.task) == (state.session, 9.0, "hello")
    assert find_turn_result(after.session, 1) is None
    with pytest.raises(InvalidInput, match="the previous segment did not make it"):
        first_session(None, sent, "run 0", "run 2", at(99))
    with pytest.raises(InvalidInput, match="a session cannot be a fork"):
        first_session({"fork": {"workflow_id": "a", "iteration": 1}}, None, None, "run", T0)


def a_long_turn() -> Conversation:
    """An old turn with its answer, and a turn with many calls."""
    rounds = [
        message
        for n in range(30)
        for message in (
            Message.of("assistant", calls=[ToolCall(call_id=f"c{n}", name="look", arguments={})]),
            Message.of_result("x" * 300, f"c{n}", "look"),
        )
    ]
    asked = [Message.of("user", text, begins_turn=True) for text in ("the old one", "the new one")]
    messages = (user("first"), asked[0], Message.of("assistant", "done"), asked[1], *rounds)
    return conversation_of(*messages, sent=len(messages))


def test_the_message_of_the_current_turn_is_kept_while_it_lasts() -> None:
    conversation = a_long_turn()
    gone = range_indexes(messages_to_drop(conversation, 1_000))
    assert {1, 2, 4, 5} <= set(gone)
    assert 3 not in gone


def with_lookups(conversation: Conversation) -> Conversation:
    """Return the conversation with a resolved reference for each of the three messages."""
    old, first = (Message.of("user", text, pinned=True, begins_turn=True) for text in ("old page", "new page"))
    messages = conversation.messages
    page = Message.of("user", "first page", pinned=True, begins_turn=True)
    found = (messages[0], page, messages[1], old, *messages[2:4], first, *messages[4:])
    return conversation_of(*found, sent=len(found))


def test_the_references_of_a_turn_are_kept_while_it_lasts() -> None:
    conversation = with_lookups(a_long_turn())
    gone = range_indexes(messages_to_drop(conversation, 1_000))
    assert {1, 2, 3, 4} <= set(gone)
    assert not {5, 6} & set(gone)
    texts = [message.text for message in shrunk_conversation(conversation, 3_000).messages]
    assert [text for text in texts if "page" in text] == ["new page"]


def test_the_message_of_a_turn_is_carried_before_its_later_calls() -> None:
    texts = [message.text for message in shrunk_conversation(a_long_turn(), 3_000).messages]
    assert "the new one" in texts
    assert "the old one" not in texts
