"""Questions with a free answer: what a run, or its model, wants to know, and what counts as an answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from orga.workflows.decisions.control.questions import parsed_resolution
from orga.workflows.types.control import Control
from orga.workflows.types.questions import Choice, Question, Resolution

S = TypeVar("S", bound=Control)

CHOICES: tuple[Choice, ...] = ("result", "skip", "abort")
"""Answer it, go on without an answer, end the run."""


def question_of(
    name: str,
    text: str,
    now: datetime,
    *,
    place: str = "",
    options: Sequence[str] = (),
    default: str = "",
    expires_s: float | None = None,
    approvers: Sequence[str] = (),
) -> Question:
    """Return a question.

    Args:
        name: What tells it from others of the run.
        text: What is asked.
        now: Since when.
        place: Of the call that asks.
        options: The only answers that count; none for any text.
        default: The answer where nobody gives one in time.
        expires_s: Seconds until then; None for as long as it takes.
        approvers: Who may answer; empty: anyone.
    """
    expires_at = None if expires_s is None else now + timedelta(seconds=expires_s)
    given: dict[str, Any] = {"place": place, "options": tuple(options), "default": default, "expires_at": expires_at}
    given |= {"approvers": tuple(approvers)}
    return Question(
        question_id=f"question-{name}",
        kind="answer",
        since=now,
        text=text,
        choices=CHOICES,
        **{key: value for key, value in given.items() if value},
    )


def answer_in(state: Control, raw: object) -> Resolution:
    """Return an answer as the decision that it is: a text, for the one question that is open, or with its id.

    Raises:
        ValueError: Nothing is asked, or not that; or it is no answer.
    """
    asked = [each.question_id for each in state.open_questions if each.kind == "answer"]
    given = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {"text": raw}
    text, by, wanted = given.get("text"), given.get("by", ""), given.get("question_id")
    if unknown := [str(key) for key in given if key not in {"text", "by", "question_id"}]:
        raise ValueError(f"answer: unknown key {unknown[0]!r}; give a text, or question_id and text")
    if not isinstance(text, str) or not text.strip():
        raise ValueError("answer: give a text that is not empty, or question_id and text")
    if not asked:
        raise ValueError("no question is open")
    if wanted is None and len(asked) > 1:
        raise ValueError(f"several questions are open, name one by question_id: {', '.join(asked)}")
    if wanted is not None and wanted not in asked:
        raise ValueError(f"no question {wanted!r} is open; open: {', '.join(asked)}")
    told = {"escalation_id": wanted or asked[0], "choice": "result", "result": text}
    return parsed_resolution(state, told | {"by": by if isinstance(by, str) else ""})


def with_refused(state: S, name: str, why: str) -> S:
    """Note that a signal was of no use: its sender gets no word."""
    return state.with_note("InterventionRefused", kind=name, reason=why)


def open_text(state: Control) -> str | None:
    """Return what the oldest open question of them asks; None where none is open."""
    return next((each.text for each in state.open_questions if each.kind == "answer"), None)
