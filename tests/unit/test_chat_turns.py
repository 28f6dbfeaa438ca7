"""The turns of a session, from its journal: folded while they go on, and told when somebody comes back."""

from datetime import timedelta

from orga.client.cli.chat.turns import SessionTurns, history_lines
from orga.client.cli.shown.progress import Progress
from orga.workflows.types.status import JournalEntry
from tests.support.values.core import T0
from tests.support.values.entries import CUT, ENDED, TURN, an_entry


def taken(entries: list[JournalEntry]) -> SessionTurns:
    turns = SessionTurns()
    for entry in entries:
        turns.take(entry)
    return turns


def test_a_call_is_one_line_when_it_is_over_and_the_answer_is_none() -> None:
    turns = SessionTurns()
    assert [line.text for entry in TURN for line in turns.take(entry)] == ["✓ read_file README.md (0.25 s)"]


def test_a_turn_is_under_way_until_it_has_ended() -> None:
    turns = taken(TURN)
    assert turns.under_way is not None
    turns.take(ENDED)
    assert (turns.under_way, turns.recorded[0].reason) == (None, "completed")


def test_guidance_is_told_and_what_turns_tell_of_is_not() -> None:
    turns = taken(TURN[:1])
    message = {"text": "Be brief", "when_busy": "steer", "message_id": "m"}
    steers = an_entry("InterventionReceived", kind="send", text=message)
    says = an_entry("InterventionReceived", kind="send", text={**message, "when_busy": "enqueue"})
    waits = an_entry("InterventionReceived", kind="await_turn", text={"turn": 1})
    assert [line.text for each in (steers, says, waits) for line in turns.take(each)] == ["steer: Be brief"]


def test_what_is_denied_stays_in_the_fold() -> None:
    turns = taken(TURN[:2])
    denied = an_entry("PolicyEvaluated", verdicts=[{"decision": "deny", "reason": "not listed"}])
    assert [line.text for line in turns.take(denied)] == ["✗ denied read_file README.md: not listed"]


def test_the_history_tells_how_long_ago_and_acts_on_no_terminal() -> None:
    told = taken([*TURN, ENDED, *CUT]).recorded
    assert history_lines(told, T0 + timedelta(days=90)) == [
        "── turn 1, 90 d ago",
        "› What is",
        "  in it?",
        "  ✓ read_file README.md (0.25 s)",
        "A test.",
        "",
        "── turn 2, 89 d ago",
        "› And then?",
        "  (interrupted)",
    ]


def test_a_long_answer_is_cut_in_the_history() -> None:
    long = an_entry("ReasoningComplete", 0.9, 2, actions=[{"respond": "x" * 5_000}], finish="stop")
    assert len("".join(history_lines(taken([TURN[0], long]).recorded, T0))) < 800


def test_the_meters_count_each_turn_anew() -> None:
    progress = Progress()
    for entry in [*TURN, ENDED, CUT[0], an_entry("ReasoningComplete", 62, 3, actions=[], finish="stop")]:
        progress = progress.with_entry(entry)
    assert (progress.iteration, progress.before) == (1, 2)
    assert not progress.begins_iteration(an_entry("PolicyEvaluated", 62, 3))
    assert progress.begins_iteration(an_entry("ReasoningComplete", 63, 4))
