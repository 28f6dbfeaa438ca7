"""What the turns of a goal answer with, as JSON Schemas: for providers that hold a reply to one.

The run reads tolerantly whatever comes back; the prompts say the same in words.
"""

from collections.abc import Mapping
from typing import Any

_TEXT, _SCORE = {"type": "string"}, {"type": "number"}
_MEMORY = {"type": ["string", "null"]}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return an object that has just these, as strict modes want it."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_STEP = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "goal": _TEXT,
        "skill": _TEXT,
        "arguments": {"type": ["object", "null"]},
        "depends_on": _list(_TEXT),
    },
    "required": ["id", "goal", "skill", "depends_on"],
}
"""Its arguments are those of the skill, so no strict mode takes it."""

_EVALUATION = _object(
    id=_TEXT,
    relevance=_SCORE,
    completeness=_SCORE,
    usability=_SCORE,
    goal_progress=_SCORE,
    quality={"type": "string", "enum": ["good", "partial", "failed"]},
    summary=_TEXT,
)

REPLY_SCHEMAS: Mapping[str, dict[str, Any]] = {
    "goal_plan": {
        "type": "object",
        "properties": {"steps": _list(_STEP), "memory": _MEMORY, "error": {"type": ["string", "null"]}},
        "required": ["steps"],
    },
    "goal_evaluate": _object(steps=_list(_EVALUATION), memory=_MEMORY),
    "goal_decide": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["continue", "adjust", "ask_user", "done", "stuck"]},
            "confidence": _SCORE,
            "reason": _TEXT,
            "question": {"type": ["string", "null"]},
            "steps": _list(_STEP),
            "memory": _MEMORY,
        },
        "required": ["action", "confidence", "reason"],
    },
    "goal_compress": _object(memory=_TEXT),
}
"""By turn; the others answer with calls, or with words for people."""
