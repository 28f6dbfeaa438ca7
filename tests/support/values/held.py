"""Calls and questions that wait for a person."""

from datetime import timedelta
from typing import Any

from orga.workflows.types.questions import Choice, QuestionKind, ShownQuestion
from tests.support.values.core import T0
from tests.support.values.statuses import NOW

CHOICES: dict[QuestionKind, tuple[Choice, ...]] = {"escalation": ("retry", "skip", "result", "abort")}


def a_wait(kind: QuestionKind, question: str = "?", wait_id: str = "w-1", **fields: Any) -> ShownQuestion:
    choices = CHOICES.get(kind, ())
    return ShownQuestion(wait_id=wait_id, kind=kind, since=T0, question=question, choices=choices, **fields)


def a_call(call_id: str = "a1", **fields: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "tool": "pay",
        "arguments": '{"amount":7}',
        "reason": "money moves",
        "approvers": ["ada", "bob"],
        "expires_at": (NOW + timedelta(hours=23)).isoformat(),
        **fields,
    }


def asking(*calls: dict[str, Any]) -> Any:
    return a_wait("approval", "approve pay?", "approval-1", data={"calls": list(calls)})
