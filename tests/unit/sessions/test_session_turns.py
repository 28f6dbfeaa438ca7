"""Turns of a session: their start state, what they leave, and how they and the session end."""

from datetime import timedelta

import pytest

from orga.client.cli.shown.status_text import status_lines
from orga.client.journal.laws import law_faults
from orga.workflows.decisions.conversation import with_message
from orga.workflows.decisions.sessions.messages import (
    check_interrupt,
    parsed_interrupt,
    with_closing,
    with_interrupted_turn,
    with_sent_message,
)
from orga.workflows.decisions.sessions.turns import (
    MAX_RESULTS,
    TurnUnknown,
    check_awaited_turn,
    elapsed_text,
    idle_seconds_left,
    session_result,
    session_status,
    stop_between_turns,
    unstored_learnings,
    with_idle_clock,
    with_turn_ended,
)
from orga.workflows.types.control import Stop
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import Message
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.sessions.session import SessionState
from orga.workflows.types.status import JournalEntry
from tests.support.values.core import T0, at
from tests.support.values.sessions import DONE, a_session, says, session_in_turn


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
def test_elapsed_time_is_shown_from_one_hour(seconds: float, words: str) -> None:
    assert elapsed_text(seconds) == words


def test_a_long_wait_is_mentioned_in_the_message_and_a_short_one_is_not() -> None:
    state = with_turn_ended(session_in_turn(a_session()), DONE, at(10))
    soon, later = session_in_turn(state, "now", 20), session_in_turn(state, "then", 10 + 3 * 86_400)
    assert soon.conversation.messages[-1].text == "now"
    assert later.conversation.messages[-1].text == "[3 days since your last answer] then"
    assert later.input.task == "then"


def test_a_turn_starts_with_full_budgets_and_keeps_taint_and_iterations() -> None:
    spent = session_in_turn(a_session()).with_control(iteration=7)
    spent = spent.with_budget(
        usage=UsageTotals(total_tokens=99, model_calls=7),
        tool_calls=ToolCallCounts(proposed=3, run=3),
        over_budget=1,
        extended={"max_iterations": 50},
    )
    spent = spent.with_dialogue(repairs=2, critiques={"c": 1}, partial="half", taint=("web",))
    spent = spent.with_failures(denials={"x": 2}, invalid={"y": 2}, failures={"t": 1})
    after = session_in_turn(with_turn_ended(spent, DONE, at(30)), "next", 60)

    assert (after.usage, after.tool_calls, after.extended, after.over_budget) == (
        UsageTotals(),
        ToolCallCounts(),
        {},
        0,
    )
    assert (after.repairs, after.critiques, after.partial, after.denials, after.invalid) == (0, {}, "", {}, {})
    assert (after.failures, after.taint, after.origin) == ({}, ("web",), "origin")
    assert (after.iteration, after.counted_iterations, after.clock.elapsed_seconds(at(65))) == (7, 0, 5.0)
    assert (after.session.usage.total_tokens, after.session.duration_s) == (99, 30.0)


def answering(state: SessionState, text: str) -> SessionState:
    return state.with_dialogue(conversation=with_message(state.conversation, Message.of("assistant", text)))


def test_each_turn_stores_only_its_own_learnings() -> None:
    first = with_turn_ended(answering(session_in_turn(a_session()), "one"), DONE, at(10))
    second = with_turn_ended(answering(session_in_turn(first, "next", 20), "two"), DONE, at(30))
    assert (unstored_learnings(first), unstored_learnings(second)) == ("one", "two")


def test_the_clock_stops_between_turns_even_after_pause_and_resume() -> None:
    state = with_idle_clock(with_turn_ended(session_in_turn(a_session()), DONE, at(10)), at(10))
    assert state.clock.stopped_at is not None
    assert state.with_control(paused=True).with_clock_updated(at(20)).with_control(paused=False).with_clock_updated(
        at(30)
    ).clock.elapsed_seconds(at(99_999)) == pytest.approx(0.0)


def test_a_result_covers_its_turn_and_the_session_has_the_totals() -> None:
    state = a_session()
    for number in range(1, 4):
        state = session_in_turn(state, f"question {number}")
        state = state.with_control(iteration=state.iteration + 2).with_task(output=f"answer {number}")
        state = state.with_budget(usage=UsageTotals(total_tokens=10, model_calls=2))
        state = with_turn_ended(state, DONE, at(10))
    assert [(each.turn, each.output, each.iterations) for each in state.session.results] == [
        (n, f"answer {n}", 2) for n in (1, 2, 3)
    ]
    ended = session_result(state, DONE, at(99))
    assert (ended.usage.total_tokens, ended.iterations, ended.turns, ended.output) == (30, 6, 3, "answer 3")
    status = session_status(session_in_turn(state, "question 4"), at(99))
    assert (status.usage.model_calls, status.turn_usage.model_calls) == (6, 0)
    shown = status_lines("session-1", status)
    assert "turn       4 of 4" in shown
    assert "iteration  0 of 25" in shown
    assert "in all     30 tokens in 6 model calls" in shown


def test_an_interrupted_turn_records_it_and_a_decided_ending_is_kept() -> None:
    cut = with_interrupted_turn(session_in_turn(a_session()), "no more")
    assert cut.stop is not None
    how = with_turn_ended(cut, cut.stop, at(5)).session.results[-1].termination
    assert (how.reason, how.detail) == ("interrupted", "no more")
    ending = session_in_turn(a_session()).with_control(stop=DONE)
    assert with_interrupted_turn(ending, "too late") is ending
    between = with_turn_ended(ending, DONE, at(5))
    assert with_interrupted_turn(between, "nothing to cut") is between
    with pytest.raises(ValueError, match="turn 1 is ending already"):
        check_interrupt(ending)
    with pytest.raises(ValueError, match="no turn is under way"):
        check_interrupt(between)
    under_way = session_in_turn(a_session())
    check_interrupt(under_way, 1)
    with pytest.raises(ValueError, match="turn 2 is not under way, turn 1 is"):
        check_interrupt(under_way, 2)


@pytest.mark.parametrize(
    ("given", "why", "turn"),
    [(None, "", None), ("enough", "enough", None), ({"turn": 3}, "", 3), ({"why": "x", "turn": None}, "x", None)],
)
def test_an_interrupt_can_name_its_turn(given: object, why: str, turn: int | None) -> None:
    wanted = parsed_interrupt(given)
    assert (wanted.why, wanted.turn) == (why, turn)


def test_an_invalid_interrupt_is_refused() -> None:
    for given, reported in (({"turn": 0}, "turn: "), ({"turns": 1}, "turns: "), (7, "input: ")):
        with pytest.raises(ValueError, match=reported):
            parsed_interrupt(given)


def test_a_turn_that_waits_at_a_limit_can_be_interrupted() -> None:
    """Otherwise it could wait for days, and the interrupting message would wait after it."""
    asks = a_session(config=LoopConfig(on_exhausted="ask"))
    at_limit = session_in_turn(asks).with_control(stop=Stop("timeout", "the time is up"))
    check_interrupt(at_limit)
    after = with_sent_message(at_limit, says("never mind", "interrupt"))
    assert (after.stop, after.session.is_cut) == (("aborted", "interrupted by a message"), True)


def test_a_session_between_turns_ends_when_closed_or_aborted() -> None:
    state = a_session(idle_timeout_s=60.0)
    assert stop_between_turns(state) is None
    assert stop_between_turns(with_closing(state)) == ("completed", "closed")
    assert stop_between_turns(with_closing(state).with_control(aborted="enough")) == ("aborted", "enough")
    assert idle_seconds_left(with_idle_clock(state, at(0)), at(45)) == pytest.approx(15.0)
    assert idle_seconds_left(a_session(), at(0)) is None


def test_only_known_and_recent_turns_can_be_awaited() -> None:
    state = with_sent_message(session_in_turn(a_session()), says("second"))
    for turn in (1, 2):
        check_awaited_turn(state.session, turn)
    with pytest.raises(TurnUnknown, match="no message became turn 3"):
        check_awaited_turn(state.session, 3)
    for number in range(MAX_RESULTS + 1):
        state = with_turn_ended(session_in_turn(state, f"m{number}"), DONE, at(number))
    with pytest.raises(TurnUnknown, match="too long ago"):
        check_awaited_turn(state.session, 1)


def test_turns_in_the_journal_do_not_overlap() -> None:
    def reported_turns(*events: tuple[str, int]) -> list[str]:
        named = [("Started", 0), *events]
        return law_faults(
            [
                JournalEntry(
                    sequence=n, timestamp=T0 + timedelta(seconds=n), agent="a", iteration=0, event=e, data={"turn": t}
                )
                for n, (e, t) in enumerate(named)
            ]
        )

    assert reported_turns(("TurnStarted", 1), ("TurnEnded", 1), ("TurnStarted", 3), ("TurnEnded", 3)) == []
    assert reported_turns(("TurnStarted", 1), ("TurnStarted", 2)) == [
        "entry 2 begins turn 2 a second time, or within another"
    ]
    assert reported_turns(("TurnEnded", 1)) == ["entry 1 ends turn 1, which was not under way"]
