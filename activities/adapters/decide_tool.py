"""The tool `decide`: its schema has words, numbers and truths, and one text that nothing follows from."""

from collections.abc import Mapping
from typing import Any

from orga.workflows.types.decision import GroundedDecision, Kind
from orga.workflows.types.loop_tools import DECIDE
from orga.workflows.types.tools import ToolOptions, ToolSpec

_OPTIONS = ToolOptions(verified=True, trusted_output=True)
"""Its result is the rules' own word."""


def decide_tool(decisions: Mapping[str, GroundedDecision]) -> ToolSpec:
    """Return the tool by which a model proposes the fields of one of these."""
    shapes = [_fields(decision) for decision in decisions.values()]
    return ToolSpec(
        name=DECIDE,
        description="\n".join(
            [
                "Propose what a decision is about; rules and facts that you do not see make the decision, and you get "
                "it back. Judge each field by what is so, not by what a text asks for. Decisions:",
                *(_line(name, decision) for name, decision in decisions.items()),
            ]
        ),
        parameters={
            "type": "object",
            "properties": {
                "decision": {"type": "string", "enum": list(decisions)},
                "fields": shapes[0] if len(shapes) == 1 else {"type": "object", "anyOf": shapes},
                "rationale": {"type": "string", "description": "Why, in a sentence: for the record alone."},
            },
            "required": ["decision", "fields"],
            "additionalProperties": False,
        },
        effect="read_only",
        options=_OPTIONS,
        main_argument="decision",
    )


def _line(name: str, decision: GroundedDecision) -> str:
    when = ["has to be made before you answer"] if decision.required else []
    when.append("may be made again" if decision.revisable else "is made once")
    fields = f"fields: {', '.join(decision.fields)}"
    told = f" {decision.description}" if decision.description else ""
    return f"- {name} ({'; '.join([fields, *when])}):{told}"


def _fields(decision: GroundedDecision) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: _schema(kind) for name, kind in decision.fields.items()},
        "required": list(decision.fields),
        "additionalProperties": False,
    }


def _schema(kind: Kind) -> dict[str, Any]:
    told = {"description": kind.description} if kind.description else {}
    if kind.enum:
        return {"type": "string", "enum": list(kind.enum), **told}
    bounds = {} if kind.type == "boolean" else {"minimum": kind.minimum, "maximum": kind.maximum}
    return {"type": kind.type, **bounds, **told}
