"""What the journal's entries say of one event."""

from typing import Any, cast

from workflows.types.history import Happening
from workflows.types.messages import Reply

SIGNALS = frozenset({"steer", "add_context", "pause", "resume", "abort"})
"""Signals that a run knows."""

Found = list[tuple[str, dict[str, Any]]]
"""Events of the journal, each with its data."""


def used(reply: Reply) -> dict[str, Any]:
    """Return what a model call used."""
    cost = {} if reply.cost_usd is None else {"cost_usd": reply.cost_usd}
    return {"usage": reply.usage.model_dump(), **cost}


def intervention(happening: Happening) -> Found:
    """Return what a signal or an update is told as."""
    value = happening.value[0] if happening.value else None
    told = {"text": value} if value is not None else {}
    if happening.kind == "updated":
        return [("InterventionReceived", {"kind": happening.name, **told})]
    if happening.name == "rewound":
        if happening.text:
            return [("InterventionReceived", {"kind": "rewind", "refused": happening.text})]
        rewind = as_object(value)
        steer = {"text": rewind["steer"]} if rewind.get("steer") else {}
        left = {"left": rewind["left"]} if rewind.get("left") else {}
        return [
            ("InterventionReceived", {"kind": "rewind", "to_iteration": rewind.get("to_iteration"), **steer, **left})
        ]
    if happening.name not in SIGNALS:
        return [("InterventionReceived", {"kind": happening.name, "known": False})]
    return [("InterventionReceived", {"kind": happening.name, **told})]


def termination(happening: Happening) -> dict[str, Any]:
    """Return how a run ended."""
    if happening.kind == "workflow_completed":
        found = as_object(happening.value)
        keys = ("iterations", "usage", "tool_calls", "duration_s", "conversation_digest")
        return {**as_object(found.get("termination")), **{key: found.get(key) for key in keys}}
    reasons = {
        "workflow_failed": "error",
        "workflow_cancelled": "aborted",
        "workflow_terminated": "aborted",
        "workflow_timed_out": "timeout",
    }
    detail = happening.text or happening.kind.removeprefix("workflow_")
    return {"reason": reasons.get(happening.kind, "error"), "detail": detail}


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object, or an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
