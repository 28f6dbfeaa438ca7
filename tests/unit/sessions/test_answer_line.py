"""The answers that a viewer is offered, and how the typed line is read."""

from datetime import UTC, datetime
from typing import Any

import pytest

from orga.client.cli.live.terminal import answer_label
from orga.client.cli.shown.progress import Progress
from orga.workflows.types.questions import QuestionKind, Resolution, ShownQuestion
from tests.support.values.entries import an_entry
from tests.support.values.statuses import a_status, progress_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def asked(wait_id: str = "question-1.0", kind: QuestionKind = "answer", **fields: Any) -> ShownQuestion:
    return ShownQuestion(wait_id=wait_id, kind=kind, since=NOW, question="Which year?", **fields)


def test_what_has_a_free_answer_is_offered_here_and_below() -> None:
    decided = Resolution(escalation_id="question-9.0", choice="result", result="x")
    own = (asked(), asked("call-1.1", "escalation"), asked("question-9.0", resolution=decided))
    below = (("run.1.0", a_status(waiting=[asked("question-2.0")])),)
    offered = Progress(run_id="run", waiting=own, below=below).open_questions()
    assert list(offered) == [("run", "question-1.0"), ("run.1.0", "question-2.0")]


def test_what_is_answered_is_not_offered_any_more() -> None:
    progress = Progress(run_id="run", waiting=(asked(),))
    answered = progress_after(an_entry("QuestionAnswered", id="question-1.0", choice="result"), since=progress)
    assert (answered.open_questions(), answered.phase) == ({}, "acting")
    other = an_entry("QuestionAnswered", id="question-7.0", choice="result")
    assert progress_after(other, since=progress).open_questions()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "answer (Enter: later) › "),
        ({"options": ["red", "blue"]}, "answer (red, blue; Enter: later) › "),
        ({"default": "blue"}, "answer (blue in the end; Enter: later) › "),
        ({"options": ["red\x1b[2J\nyes"]}, "answer (red\\u001b[2J yes; Enter: later) › "),
    ],
    ids=["a text", "options", "a default", "a hostile option"],
)
def test_the_line_says_what_counts(data: dict[str, Any], says: str) -> None:
    assert answer_label(asked(data=data)) == says
