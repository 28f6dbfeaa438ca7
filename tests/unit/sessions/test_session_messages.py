"""A message to a session is taken, refused, or joins the current turn."""

import pytest

from orga.workflows.decisions.sessions.messages import (
    MAX_QUEUED_MESSAGES,
    MAX_TAKEN,
    QueueFull,
    SessionBusy,
    SessionClosed,
    check_message,
    with_closing,
    with_sent_message,
)
from orga.workflows.decisions.sessions.turns import with_session_end
from orga.workflows.types.control import Stop
from orga.workflows.types.sessions.session_input import WhenBusy
from tests.support.values.sessions import DONE, a_session, says, session_in_turn


@pytest.mark.parametrize(
    ("when_busy", "turn", "queue", "is_cut"),
    [
        ("enqueue", 3, (2, 3), False),
        ("refuse", None, (2,), False),
        ("steer", 1, (2,), False),
        ("interrupt", 3, (3, 2), True),
    ],
)
def test_a_message_during_a_turn_is_handled_by_its_mode(
    when_busy: WhenBusy, turn: int | None, queue: tuple[int, ...], is_cut: bool
) -> None:
    state = with_sent_message(session_in_turn(a_session()), says("second"))
    message = says("third", when_busy)
    if turn is None:
        with pytest.raises(SessionBusy, match="turn 1 is under way"):
            check_message(state, message)
        return
    check_message(state, message)
    after = with_sent_message(state, message)
    assert after.session.taken[message.message_id].turn == turn
    assert tuple(each.turn for each in after.session.queue) == queue
    assert (after.stop is not None, after.session.is_cut) == (is_cut, is_cut)
    assert len(after.inbox) == (when_busy == "steer")


@pytest.mark.parametrize(
    ("stop", "queued", "turn", "waits"),
    [
        pytest.param(DONE, (), 1, (), id="it reopens an answered turn"),
        pytest.param(Stop("aborted", "cut"), (), 2, (2,), id="an interrupted turn cannot read it, so it gets its own"),
        pytest.param(Stop("error", ""), (), 2, (2,), id="a failed turn cannot read it"),
        pytest.param(Stop("aborted", "cut"), ("next",), 2, (2,), id="the next turn reads it"),
    ],
)
def test_guidance_goes_to_a_turn_that_can_read_it(
    stop: Stop, queued: tuple[str, ...], turn: int, waits: tuple[int, ...]
) -> None:
    state = session_in_turn(a_session())
    for text in queued:
        state = with_sent_message(state, says(text))
    message = says("shorter", "steer")
    check_message(state.with_control(stop=stop), message)
    after = with_sent_message(state.with_control(stop=stop), message)
    assert (after.session.taken[message.message_id].turn, tuple(each.turn for each in after.session.queue)) == (
        turn,
        waits,
    )
    assert [each.text for each in after.inbox] == (["shorter"] if turn == 1 or queued else [])


def test_a_repeated_message_id_changes_nothing_even_if_the_session_is_ending() -> None:
    state = with_closing(session_in_turn(a_session()))
    check_message(state, says("hello"))
    assert with_sent_message(state, says("hello")) is state
    with pytest.raises(SessionClosed):
        check_message(state, says("other"))


def test_the_queue_is_bounded_by_number_and_bytes() -> None:
    full = session_in_turn(a_session())
    for number in range(MAX_QUEUED_MESSAGES):
        full = with_sent_message(full, says(f"{number}"))
    with pytest.raises(QueueFull, match="20 messages wait already"):
        check_message(full, says("more"))
    large = with_sent_message(session_in_turn(a_session()), says("x" * 40_000))
    with pytest.raises(QueueFull):
        check_message(large, says("y" * 40_000))


def test_interrupting_messages_are_answered_in_order() -> None:
    state = with_sent_message(session_in_turn(a_session()), says("waits"))
    for text in ("stop", "no, rather this", "and that"):
        state = with_sent_message(state, says(text, "interrupt"))
    assert [each.text for each in state.session.queue] == ["stop", "no, rather this", "and that", "waits"]


def test_a_message_id_belongs_to_one_text() -> None:
    """A different text with the same id would be answered by a turn that never read it."""
    state = with_sent_message(session_in_turn(a_session()), says("Delete nothing.", message_id="m"))
    check_message(state, says("Delete nothing.", message_id="m"))
    with pytest.raises(ValueError, match="message_id 'm' was sent with another text, which became turn 2"):
        check_message(state, says("Delete it all.", message_id="m"))
    for number in range(MAX_TAKEN):
        state = with_sent_message(state.with_session(queue=()), says(message_id=f"z{number}"))
    assert len(state.session.taken) == MAX_TAKEN


def test_messages_that_wait_at_the_end_are_answered_as_aborted() -> None:
    state = with_session_end(with_sent_message(with_sent_message(a_session(), says("a")), says("b")))
    assert [(r.turn, r.termination.reason) for r in state.session.results] == [(1, "aborted"), (2, "aborted")]
    assert not state.session.queue
