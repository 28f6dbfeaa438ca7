"""What a goal asks the person that it works for, and what counts as an answer."""

from datetime import datetime
from typing import Any, cast

from orga.workflows.decisions.control.questions import open_questions, parsed_resolution
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.questions import Question, Resolution

_ID = "question-"


def question(state: GoalState, now: datetime) -> Question:
    """Return what the model wants to know, as a question with a free answer; asked on, it keeps its id."""
    pursuit = state.pursuit
    return Question(
        question_id=f"{_ID}{pursuit.questions}",
        kind="escalation",
        since=now,
        text=pursuit.question,
        choices=("result", "skip", "abort"),
    )


def answer_in(state: GoalState, raw: object) -> Resolution:
    """Return an answer as the decision that it is: a text, for the one question that is open, or with its id.

    Raises:
        ValueError: Nothing is asked, or not that; or it is no answer.
    """
    asked = [each.question_id for each in open_questions(state) if each.question_id.startswith(_ID)]
    given = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {"text": raw}
    text, by = given.get("text"), given.get("by", "")
    if not isinstance(text, str) or not text.strip():
        raise ValueError("answer: give a text that is not empty, or question_id and text")
    if not asked:
        raise ValueError("no question is open")
    wanted = given.get("question_id", asked[0])
    if wanted not in asked:
        raise ValueError(f"no question {wanted!r} is open; open: {', '.join(asked)}")
    told = {"escalation_id": wanted, "choice": "result", "result": text, "by": by if isinstance(by, str) else ""}
    return parsed_resolution(state, told)
