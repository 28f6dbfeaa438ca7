"""Turns of a session: what a message does, what a turn begins with and leaves, what is carried on."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from orga.client.cli.status_lines import status_lines
from orga.client.journal.laws import law_faults
from orga.workflows.decisions.compaction import messages_to_drop
from orga.workflows.decisions.conversation import with_message
from orga.workflows.decisions.roll_over import carried, shrunk
from orga.workflows.decisions.sessions.begin import first_session, opened
from orga.workflows.decisions.sessions.elapsed import elapsed_words
from orga.workflows.decisions.sessions.messages import (
    MAX_QUEUE,
    MAX_TAKEN,
    QueueFull,
    SessionBusy,
    SessionClosed,
    check_cut,
    check_message,
    with_closing,
    with_cut,
    with_sent,
)
from orga.workflows.decisions.sessions.shown import session_result, session_status
from orga.workflows.decisions.sessions.turns import (
    MAX_RESULTS,
    RESULTS_BYTES,
    TurnUnknown,
    check_awaited,
    end_between_turns,
    idle,
    patience_s,
    result_of,
    unlearnt,
    with_end,
    with_light_results,
    with_turn_begun,
    with_turn_ended,
)
from orga.workflows.types.control import Stop
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.ranges import indexes
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.sessions.input import MAX_MESSAGE_BYTES, SessionInput, SessionMessage, WhenBusy
from orga.workflows.types.sessions.session import SESSION_BYTES, SessionState
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.usage import ToolCallCounts, UsageTotals
from tests.support.values.core import T0, at, conversation_of, user

DONE: Stop = ("completed", "")


def a_session(**given: Any) -> SessionState:
    return opened(SessionInput(**given), "origin", T0)


def says(text: str = "hello", when_busy: WhenBusy = "enqueue", message_id: str = "") -> SessionMessage:
    return SessionMessage(text=text, message_id=message_id or f"id-{text[:20]}".replace(" ", "-"), when_busy=when_busy)


def begun(state: SessionState, text: str = "hello", seconds: int = 0) -> SessionState:
    return with_turn_begun(with_sent(state, says(text)), at(seconds))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3_599, ""),
        (3_600, "1 hour"),
        (7_300, "2 hours"),
        (86_400, "1 day"),
        (3 * 86_400, "3 days"),
        (14 * 86_400, "2 weeks"),
        (61 * 86_400, "2 months"),
        (800 * 86_400, "2 years"),
    ],
)
def test_time_is_told_in_words_from_an_hour_on(seconds: float, words: str) -> None:
    assert elapsed_words(seconds) == words


def test_a_long_wait_is_told_with_the_message_and_a_short_one_is_not() -> None:
    state = with_turn_ended(begun(a_session()), DONE, at(10))
    soon, later = begun(state, "now", 20), begun(state, "then", 10 + 3 * 86_400)
    assert soon.conversation.messages[-1].text == "now"
    assert later.conversation.messages[-1].text == "[3 days since your last answer] then"
    assert later.input.task == "then"


def test_a_turn_begins_with_all_budgets_and_keeps_what_a_run_keeps() -> None:
    spent = begun(a_session()).with_control(iteration=7)
    spent = spent.with_budget(
        usage=UsageTotals(total_tokens=99, model_calls=7),
        tool_calls=ToolCallCounts(proposed=3, run=3),
        over_budget=1,
        extended={"max_iterations": 50},
    )
    spent = spent.with_dialogue(repairs=2, critiques={"c": 1}, partial="half", taint=("web",))
    spent = spent.with_failures(denials={"x": 2}, invalid={"y": 2}, failures={"t": 1})
    after = begun(with_turn_ended(spent, DONE, at(30)), "next", 60)

    assert (after.usage, after.tool_calls, after.extended, after.over_budget) == (
        UsageTotals(),
        ToolCallCounts(),
        {},
        0,
    )
    assert (after.repairs, after.critiques, after.partial, after.denials, after.invalid) == (0, {}, "", {}, {})
    assert (after.failures, after.taint, after.origin) == ({}, ("web",), "origin")
    assert (after.iteration, after.counted_iterations, after.clock.elapsed_s(at(65))) == (7, 0, 5.0)
    assert (after.session.usage.total_tokens, after.session.duration_s) == (99, 30.0)


def answering(state: SessionState, text: str) -> SessionState:
    return state.with_dialogue(conversation=with_message(state.conversation, Message.of("assistant", text)))


def test_the_end_of_a_turn_stores_what_that_turn_has_taught() -> None:
    first = with_turn_ended(answering(begun(a_session()), "one"), DONE, at(10))
    second = with_turn_ended(answering(begun(first, "next", 20), "two"), DONE, at(30))
    assert (unlearnt(first), unlearnt(second)) == ("one", "two")


def test_between_turns_the_clock_stands_still_also_where_somebody_pauses_and_resumes() -> None:
    state = idle(with_turn_ended(begun(a_session()), DONE, at(10)), at(10))
    assert state.clock.stopped_at is not None
    assert state.with_control(paused=True).with_clock_updated(at(20)).with_control(paused=False).with_clock_updated(
        at(30)
    ).clock.elapsed_s(at(99_999)) == pytest.approx(0.0)


def test_a_result_is_that_of_the_turn_alone_and_the_session_has_the_totals() -> None:
    state = a_session()
    for number in range(1, 4):
        state = begun(state, f"question {number}")
        state = state.with_control(iteration=state.iteration + 2).with_task(output=f"answer {number}")
        state = state.with_budget(usage=UsageTotals(total_tokens=10, model_calls=2))
        state = with_turn_ended(state, DONE, at(10))
    assert [(each.turn, each.output, each.iterations) for each in state.session.results] == [
        (n, f"answer {n}", 2) for n in (1, 2, 3)
    ]
    ended = session_result(state, DONE, at(99))
    assert (ended.usage.total_tokens, ended.iterations, ended.turns, ended.output) == (30, 6, 3, "answer 3")
    status = session_status(begun(state, "question 4"), at(99))
    assert (status.usage.model_calls, status.turn_usage.model_calls) == (6, 0)
    shown = status_lines("session-1", status)
    assert "turn       4 of 4" in shown
    assert "iteration  0 of 25" in shown
    assert "in all     30 tokens in 6 model calls" in shown


@pytest.mark.parametrize(
    ("when_busy", "turn", "queue", "is_cut"),
    [
        ("enqueue", 3, (2, 3), False),
        ("refuse", None, (2,), False),
        ("steer", 1, (2,), False),
        ("interrupt", 3, (3, 2), True),
    ],
)
def test_what_becomes_of_a_message_while_a_turn_is_under_way(
    when_busy: WhenBusy, turn: int | None, queue: tuple[int, ...], is_cut: bool
) -> None:
    state = with_sent(begun(a_session()), says("second"))
    message = says("third", when_busy)
    if turn is None:
        with pytest.raises(SessionBusy, match="turn 1 is under way"):
            check_message(state, message)
        return
    check_message(state, message)
    after = with_sent(state, message)
    assert after.session.taken[message.message_id].turn == turn
    assert tuple(each.turn for each in after.session.queue) == queue
    assert (after.stop is not None, after.session.is_cut) == (is_cut, is_cut)
    assert len(after.inbox) == (when_busy == "steer")


@pytest.mark.parametrize(
    ("stop", "queued", "turn", "waits"),
    [
        pytest.param(DONE, (), 1, (), id="an answer gives way to it"),
        pytest.param(
            ("aborted", "cut"), (), 2, (2,), id="of a turn that is cut nothing reads it: it is one of its own"
        ),
        pytest.param(("error", ""), (), 2, (2,), id="nor of one that fails"),
        pytest.param(("aborted", "cut"), ("next",), 2, (2,), id="the turn about to begin does"),
    ],
)
def test_guidance_is_for_a_turn_that_reads_it(
    stop: Stop, queued: tuple[str, ...], turn: int, waits: tuple[int, ...]
) -> None:
    state = begun(a_session())
    for text in queued:
        state = with_sent(state, says(text))
    message = says("shorter", "steer")
    check_message(state.with_control(stop=stop), message)
    after = with_sent(state.with_control(stop=stop), message)
    assert (after.session.taken[message.message_id].turn, tuple(each.turn for each in after.session.queue)) == (
        turn,
        waits,
    )
    assert [each.text for each in after.inbox] == (["shorter"] if turn == 1 or queued else [])


def test_a_message_id_that_was_seen_changes_nothing_also_where_the_queue_is_full_or_the_session_ends() -> None:
    state = with_closing(begun(a_session()))
    check_message(state, says("hello"))
    assert with_sent(state, says("hello")) is state
    with pytest.raises(SessionClosed):
        check_message(state, says("other"))


def test_the_queue_is_bounded_by_number_and_by_bytes() -> None:
    full = begun(a_session())
    for number in range(MAX_QUEUE):
        full = with_sent(full, says(f"{number}"))
    with pytest.raises(QueueFull, match="20 messages wait already"):
        check_message(full, says("more"))
    large = with_sent(begun(a_session()), says("x" * 40_000))
    with pytest.raises(QueueFull):
        check_message(large, says("y" * 40_000))


def test_a_cut_turn_says_so_and_one_whose_end_is_decided_ends_as_it_does() -> None:
    cut = with_cut(begun(a_session()), "no more")
    assert cut.stop is not None
    how = with_turn_ended(cut, cut.stop, at(5)).session.results[-1].termination
    assert (how.reason, how.detail) == ("interrupted", "no more")
    ending = begun(a_session()).with_control(stop=DONE)
    assert with_cut(ending, "too late") is ending
    between = with_turn_ended(ending, DONE, at(5))
    assert with_cut(between, "nothing to cut") is between
    with pytest.raises(ValueError, match="turn 1 is ending already"):
        check_cut(ending)
    with pytest.raises(ValueError, match="no turn is under way"):
        check_cut(between)


def test_a_turn_at_a_limit_that_people_are_asked_about_can_be_cut() -> None:
    """Else it would wait for them for days, and the message that cuts it behind that."""
    asks = a_session(config=LoopConfig(on_exhausted="ask"))
    at_limit = begun(asks).with_control(stop=("timeout", "the time is up"))
    check_cut(at_limit)
    after = with_sent(at_limit, says("never mind", "interrupt"))
    assert (after.stop, after.session.is_cut) == (("aborted", "interrupted by a message"), True)


def test_messages_that_cut_are_answered_in_the_order_in_which_they_came() -> None:
    state = with_sent(begun(a_session()), says("waits"))
    for text in ("stop", "no, rather this", "and that"):
        state = with_sent(state, says(text, "interrupt"))
    assert [each.text for each in state.session.queue] == ["stop", "no, rather this", "and that", "waits"]


def test_why_a_session_ends_between_turns() -> None:
    state = a_session(idle_timeout_s=60.0)
    assert end_between_turns(state) is None
    assert end_between_turns(with_closing(state)) == ("completed", "closed")
    assert end_between_turns(with_closing(state).with_control(aborted="enough")) == ("aborted", "enough")
    assert patience_s(idle(state, at(0)), at(45)) == pytest.approx(15.0)
    assert patience_s(a_session(), at(0)) is None


def test_messages_that_wait_when_it_ends_are_answered_as_not_begun() -> None:
    state = with_end(with_sent(with_sent(a_session(), says("a")), says("b")))
    assert [(r.turn, r.termination.reason) for r in state.session.results] == [(1, "aborted"), (2, "aborted")]
    assert not state.session.queue


def test_who_can_be_told_of_a_turn() -> None:
    state = with_sent(begun(a_session()), says("second"))
    for turn in (1, 2):
        check_awaited(state.session, turn)
    with pytest.raises(TurnUnknown, match="no message became turn 3"):
        check_awaited(state.session, 3)
    for number in range(MAX_RESULTS + 1):
        state = with_turn_ended(begun(state, f"m{number}"), DONE, at(number))
    with pytest.raises(TurnUnknown, match="too long ago"):
        check_awaited(state.session, 1)


def test_an_id_stands_for_the_words_that_it_was_sent_with() -> None:
    """A message with other words under that id would be answered with a turn that never read it."""
    state = with_sent(begun(a_session()), says("Delete nothing.", message_id="m"))
    check_message(state, says("Delete nothing.", message_id="m"))
    with pytest.raises(ValueError, match="message_id 'm' was sent with other words, which became turn 2"):
        check_message(state, says("Delete it all.", message_id="m"))
    for number in range(MAX_TAKEN):
        state = with_sent(state.with_session(queue=()), says(message_id=f"z{number}"))
    assert len(state.session.taken) == MAX_TAKEN


def largest() -> SessionState:
    state = a_session()
    for number in range(MAX_RESULTS + 5):
        state = begun(state, f"m{number}").with_task(output='"' * 590_000)
        state = with_turn_ended(state, ("error", "\x00" * 5_000), at(number))
    for number in range(MAX_QUEUE):
        state = with_sent(state, says("q" * 2_900, message_id=f"{number}".ljust(100, "x")))
    for number in range(100):
        state = with_sent(
            state.with_session(queue=state.session.queue[:19]), says(message_id=f"z{number}".ljust(100, "x"))
        )
    return state


def test_what_a_session_knows_beside_a_run_has_its_room_in_the_payload() -> None:
    """The newest answer is kept whole as long as there is room: it is cut only where the state is too large."""
    state = largest()
    assert len(state.session.results[-1].output) == 590_000
    light = with_light_results(state)
    assert sum(len(to_json(each.model_dump(mode="json"))) for each in light.session.results) <= RESULTS_BYTES
    own = len(light.session.model_dump_json(exclude_unset=True).encode())
    assert own <= SESSION_BYTES
    assert state.room_for_tasks == SESSION_BYTES + 2 * MAX_MESSAGE_BYTES


def test_a_session_is_carried_on_as_it_is_and_nobody_can_make_one_up() -> None:
    state = with_sent(begun(a_session(idle_timeout_s=9.0)), says("second"))
    sent = from_json(carried(state, "run 1").model_dump_json(exclude_unset=True))
    after = first_session(None, sent, "run 1", "run 2", at(99))
    assert (after.session, after.idle_timeout_s, after.input.task) == (state.session, 9.0, "hello")
    assert result_of(after.session, 1) is None
    with pytest.raises(InvalidInput, match="not made by the run before"):
        first_session(None, sent, "run 0", "run 2", at(99))
    with pytest.raises(InvalidInput, match="a session cannot be a fork"):
        first_session({"fork": {"workflow_id": "a", "iteration": 1}}, None, None, "run", T0)


def test_the_law_of_turns() -> None:
    def told(*events: tuple[str, int]) -> list[str]:
        named = [("Started", 0), *events]
        return law_faults(
            [
                JournalEntry(
                    sequence=n, timestamp=T0 + timedelta(seconds=n), agent="a", iteration=0, event=e, data={"turn": t}
                )
                for n, (e, t) in enumerate(named)
            ]
        )

    assert told(("TurnStarted", 1), ("TurnEnded", 1), ("TurnStarted", 3), ("TurnEnded", 3)) == []
    assert told(("TurnStarted", 1), ("TurnStarted", 2)) == ["entry 2 begins turn 2 a second time, or within another"]
    assert told(("TurnEnded", 1)) == ["entry 1 ends turn 1, which was not under way"]


def a_long_turn() -> Conversation:
    """An old turn with its answer, and one that began before many calls."""
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


def test_what_the_turn_under_way_was_begun_with_stays_while_it_lasts() -> None:
    conversation = a_long_turn()
    gone = indexes(messages_to_drop(conversation, 1_000))
    assert {1, 2, 4, 5} <= set(gone)
    assert 3 not in gone


def with_lookups(conversation: Conversation) -> Conversation:
    """Return it where something was looked up for each of the three messages."""
    old, first = (Message.of("user", text, pinned=True, begins_turn=True) for text in ("old page", "new page"))
    messages = conversation.messages
    page = Message.of("user", "first page", pinned=True)
    found = (messages[0], page, messages[1], old, *messages[2:4], first, *messages[4:])
    return conversation_of(*found, sent=len(found))


def test_what_was_looked_up_for_a_turn_stays_while_that_lasts() -> None:
    conversation = with_lookups(a_long_turn())
    gone = indexes(messages_to_drop(conversation, 1_000))
    assert {2, 3, 4} <= set(gone)
    assert not {0, 1, 5, 6} & set(gone)
    texts = [message.text for message in shrunk(conversation, 3_000).messages]
    assert [text for text in texts if "page" in text] == ["first page", "new page"]


def test_it_is_carried_on_ahead_of_calls_that_came_after_it() -> None:
    texts = [message.text for message in shrunk(a_long_turn(), 3_000).messages]
    assert "the new one" in texts
    assert "the old one" not in texts
