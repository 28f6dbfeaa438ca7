"""The questions that a viewer can answer, and the label of the input line."""

from datetime import UTC, datetime
from typing import Any

import pytest

from orga.client.cli.live.screens import answer_label
from orga.client.cli.shown.progress import DelegateStatus, Progress
from orga.workflows.types.questions import QuestionKind, Resolution, ShownQuestion
from tests.support.values.entries import an_entry
from tests.support.values.statuses import a_status, progress_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def asked(wait_id: str = "question-1.0", kind: QuestionKind = "answer", **fields: Any) -> ShownQuestion:
    return ShownQuestion(wait_id=wait_id, kind=kind, since=NOW, question="Which year?", **fields)


def test_open_questions_of_the_run_and_its_delegates_are_offered() -> None:
    decided = Resolution(escalation_id="question-9.0", choice="result", result="x")
    own = (asked(), asked("call-1.1", "escalation"), asked("question-9.0", resolution=decided))
    delegates = (DelegateStatus("run.1.0", a_status(waiting=[asked("question-2.0")])),)
    offered = Progress(run_id="run", waiting=own, delegates=delegates).open_questions()
    assert list(offered) == [("run", "question-1.0"), ("run.1.0", "question-2.0")]


def test_an_answered_question_is_no_longer_offered() -> None:
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
        ({"default": "blue"}, "answer (blue if nobody answers; Enter: later) › "),
        ({"options": ["red\x1b[2J\nyes"]}, "answer (red\\u001b[2J yes; Enter: later) › "),
    ],
    ids=["a text", "options", "a default", "a hostile option"],
)
def test_the_label_shows_options_and_default(data: dict[str, Any], says: str) -> None:
    assert answer_label(asked(data=data)) == says
