"""The turns of a session, folded from its journal and shown to a person who returns."""

from datetime import timedelta

from orga.client.cli.chat.talk import SessionTurns, history_lines
from orga.client.cli.shown.text import StyledLine
from orga.client.journal.run_view import RunView
from orga.workflows.types.status import JournalEntry
from tests.support.values.core import T0
from tests.support.values.entries import CUT, ENDED, TURN, an_entry
from tests.support.values.statuses import progress_after


class Turns(SessionTurns):
    """The turns of one session, with the run of its entries."""

    def __init__(self, *entries: JournalEntry) -> None:
        super().__init__()
        self.run = RunView()
        for entry in entries:
            self.add(entry)

    def add(self, entry: JournalEntry) -> list[StyledLine]:
        return self.take(self.run.take(entry))


def test_a_finished_call_is_shown_on_one_line_and_the_answer_on_none() -> None:
    turns = Turns()
    assert [line.text for entry in TURN for line in turns.add(entry)] == ["✓ read_file README.md (0.25 s)"]


def test_a_turn_is_in_progress_until_it_ends() -> None:
    turns = Turns(*TURN)
    assert turns.current is not None
    turns.add(ENDED)
    assert (turns.current, turns.recorded[0].turn.reason) == (None, "completed")


def test_guidance_is_shown_and_messages_that_become_turns_are_not() -> None:
    turns = Turns(*TURN[:1])
    message = {"text": "Be brief", "when_busy": "steer", "message_id": "m"}
    steers = an_entry("InterventionReceived", kind="send", text=message)
    says = an_entry("InterventionReceived", kind="send", text={**message, "when_busy": "enqueue"})
    waits = an_entry("InterventionReceived", kind="await_turn", text={"turn": 1})
    assert [line.text for each in (steers, says, waits) for line in turns.add(each)] == ["steer: Be brief"]


def test_a_denied_call_is_shown() -> None:
    turns = Turns(*TURN[:2])
    denied = an_entry("PolicyEvaluated", verdicts=[{"decision": "deny", "reason": "not listed"}])
    assert [line.text for line in turns.add(denied)] == ["✗ denied read_file README.md: not listed"]


def test_the_history_shows_ages_and_no_control_sequences() -> None:
    entries = Turns(*TURN, ENDED, *CUT).recorded
    assert history_lines(entries, T0 + timedelta(days=90)) == [
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
    assert len("".join(history_lines(Turns(TURN[0], long).recorded, T0))) < 800


def test_the_meters_restart_with_each_turn() -> None:
    entries = [*TURN, ENDED, CUT[0], an_entry("ReasoningComplete", 62, 3, actions=[], finish="stop")]
    assert progress_after(*entries).iteration == 1
    run = Turns(*entries).run
    assert run.earlier_iterations == 2
    assert not run.take(an_entry("PolicyEvaluated", 62, 3)).begins_iteration
    assert run.take(an_entry("ReasoningComplete", 63, 4)).begins_iteration
