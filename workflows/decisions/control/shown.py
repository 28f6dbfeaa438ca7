"""What people are shown of a question: whole, or by size and digest where it has no room."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pydantic_core import to_json

from orga.workflows.types.questions import ANSWER, Item, Question, ShownQuestion
from orga.workflows.types.text import clip

SHOWN_BYTES = 2_000
"""Of an item's arguments, in what a person is shown."""

SHOWN_ANSWER_BYTES = 50_000
"""Of an answer that a person reviews: all of it counts."""


def shown_arguments(arguments: str, most: int) -> dict[str, Any]:
    """Return the JSON of a call's arguments with, where more than `most` bytes do not fit, its size and digest."""
    size = len(arguments.encode())
    if size <= most:
        return {"arguments": arguments}
    return {
        "arguments": clip(arguments, most),
        "arguments_bytes": size,
        "arguments_digest": f"sha256:{sha256(arguments.encode()).hexdigest()}",
    }


def shown_question(question: Question) -> ShownQuestion:
    """Return what people are shown of it: its own data, and each item that nobody has decided."""
    calls = {"calls": [shown(item) for item in question.items if item.answer is None]} if question.items else {}
    return ShownQuestion(
        wait_id=question.question_id,
        kind=question.kind,
        since=question.since,
        question=question.text,
        queue=question.queue,
        data={**question.data, **of_answer(question), **calls},
        choices=question.choices,
        resolution=question.resolution,
    )


def of_answer(question: Question) -> dict[str, Any]:
    """Return what else is said of a question with a free answer."""
    expires_at = question.expires_at.isoformat() if question.expires_at else ""
    said = {"options": list(question.options), "default": question.default, "expires_at": expires_at}
    return {key: value for key, value in said.items() if value}


def shown(item: Item) -> dict[str, Any]:
    """Return what people are shown of an item: all of its arguments, or what they are known by."""
    call = item.call
    most = SHOWN_ANSWER_BYTES if call.get("name") == ANSWER else SHOWN_BYTES
    arguments = shown_arguments(to_json(call.get("arguments", {}), inf_nan_mode="strings").decode(), most)
    return {
        "id": item.approval_id,
        "tool": call.get("name", ""),
        "call_id": call.get("call_id", ""),
        **(arguments if "arguments_digest" not in call else _light(call)),
        "reason": item.reason,
        "approvers": list(item.approvers),
        "expires_at": item.expires_at.isoformat(),
        **item.asker,
    }


def light_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call whose arguments are named by size and digest: a part of them could be read as the whole."""
    if "arguments_digest" in call:
        return dict(call)
    known = shown_arguments(to_json(call.get("arguments", {}), inf_nan_mode="strings").decode(), -1)
    return {"call_id": call.get("call_id", ""), "name": call.get("name", ""), **known, "arguments": {}}


def _light(call: Mapping[str, Any]) -> dict[str, Any]:
    return {key: call[key] for key in ("arguments_bytes", "arguments_digest")} | {"arguments": ""}
