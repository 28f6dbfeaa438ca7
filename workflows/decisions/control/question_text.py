"""The views of a question for people and for the journal: whole, or with size and digest if there is no room."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pydantic_core import to_json

from orga.workflows.types.questions import (
    ANSWER,
    QUESTION_ANSWERED,
    QUESTION_ASKED,
    Item,
    Question,
    ShownQuestion,
)
from orga.workflows.types.text import clip

SHOWN_BYTES = 2_000
"""Bytes of an item's arguments that a person sees."""

SHOWN_ANSWER_BYTES = 50_000
"""Bytes of an answer that a person reviews. All of it counts."""


def shown_arguments(arguments: str, most: int) -> dict[str, Any]:
    """Return the arguments as JSON text. If they exceed `most` bytes, they are cut, and size and digest are added."""
    size = len(arguments.encode())
    if size <= most:
        return {"arguments": arguments}
    return {
        "arguments": clip(arguments, most),
        "arguments_bytes": size,
        "arguments_digest": f"sha256:{sha256(arguments.encode()).hexdigest()}",
    }


def shown_question(question: Question) -> ShownQuestion:
    """Return a question as people see it: its own data, and each undecided item."""
    calls = {"calls": [shown_item(item) for item in question.items if item.answer is None]} if question.items else {}
    return ShownQuestion(
        wait_id=question.question_id,
        kind=question.kind,
        since=question.since,
        question=question.text,
        queue=question.queue,
        data={**question.data, **answer_terms(question), **calls},
        choices=question.choices,
        resolution=question.resolution,
    )


EventData = tuple[str, dict[str, Any]]


def question_asked_event(question: Question) -> EventData:
    if question.kind == "answer":
        return QUESTION_ASKED, {"id": question.question_id, "question": question.text, **answer_terms(question)}
    data = {"kind": question.kind, "id": question.question_id, "question": question.text, "queue": question.queue}
    if question.kind == "result":
        data |= answer_terms(question)
    return "ApprovalRequested", data


def question_closed_event(question: Question) -> EventData:
    """Return the journal's note that the question is closed. For the call that asked, any answer is a success."""
    decision = question.resolution
    if question.kind == "result":
        return "ApprovalResolved", {"kind": question.kind, "id": question.question_id, **_completion_data(question)}
    decided = (
        {"choice": decision.choice, "by": decision.by, "reason": decision.reason} if decision else {"choice": "none"}
    )
    if question.kind != "answer":
        return "ApprovalResolved", {"kind": question.kind, "id": question.question_id, **decided}
    decided_data = decided | ({"answer": decision.result} if decision else {})
    data = {
        "id": question.question_id,
        "question": question.text,
        **{key: text for key, text in decided_data.items() if text},
    }
    if question.place:
        data |= {"place": question.place, "outcome": "ok" if decision else "cancelled"}
    return QUESTION_ANSWERED, data


def _completion_data(question: Question) -> dict[str, Any]:
    """Return how a call got its result. The outcome of the call has the result itself."""
    if (completion := question.completion) is None:
        return {"choice": "expired" if question.resolution else "none"}
    failed = {"reason": completion.error} if completion.error else {}
    return {"choice": "failed" if completion.error else "completed", "by": completion.by, **failed}


def answer_terms(question: Question) -> dict[str, Any]:
    """Return the valid answers, who may give them, the default, and the expiry."""
    expires_at = question.expires_at.isoformat() if question.expires_at else ""
    terms = {"options": list(question.options), "default": question.default, "expires_at": expires_at}
    terms |= {"approvers": list(question.approvers)}
    return {key: value for key, value in terms.items() if value}


def shown_item(item: Item) -> dict[str, Any]:
    """Return an item as people see it: with all of its arguments, or their size and digest."""
    call = item.call
    most = SHOWN_ANSWER_BYTES if call.get("name") == ANSWER else SHOWN_BYTES
    arguments = shown_arguments(to_json(call.get("arguments", {}), inf_nan_mode="strings").decode(), most)
    return {
        "id": item.approval_id,
        "tool": call.get("name", ""),
        "call_id": call.get("call_id", ""),
        **(arguments if "arguments_digest" not in call else _arguments_by_digest(call)),
        "reason": item.reason,
        "approvers": list(item.approvers),
        "expires_at": item.expires_at.isoformat(),
        **item.asker_data,
    }


def call_without_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with size and digest in place of its arguments, because a part could be read as the whole."""
    if "arguments_digest" in call:
        return dict(call)
    known = shown_arguments(to_json(call.get("arguments", {}), inf_nan_mode="strings").decode(), -1)
    return {"call_id": call.get("call_id", ""), "name": call.get("name", ""), **known, "arguments": {}}


def _arguments_by_digest(call: Mapping[str, Any]) -> dict[str, Any]:
    return {key: call[key] for key in ("arguments_bytes", "arguments_digest")} | {"arguments": ""}
