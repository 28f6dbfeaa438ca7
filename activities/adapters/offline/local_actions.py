"""The action protocol. Without native tool calls, a JSON schema makes the model write an answer or a call."""

from typing import Any, cast

from pydantic_core import from_json, to_json

from orga.activities.adapters.models.schema_shape import with_moved_references
from orga.activities.ports import ToolChoice
from orga.workflows.types.json_text import has_unique_keys
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec

STRING_LIMIT = 200
"""Characters of one string."""
LIST_LIMIT = 10

_DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples"})
_BOUNDED_KEYWORDS = frozenset({"enum", "const", "pattern", "format", "maxLength"})
_DATA_PLACE = "#/anyOf/0/properties/data"
"""The place of an answer's schema within the schema of actions."""


def action_schema(
    tools: tuple[ToolSpec, ...], choice: ToolChoice, answer_limit: int, output_schema: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return the schema of one action, or None if only an answer is possible, because plain text then reads better.

    An answer has at most `answer_limit` characters, or it is data of `output_schema`.
    """
    if not tools or choice == "none":
        return None
    answer = _action_variant("answer", {"text": {"type": "string", "maxLength": answer_limit}})
    if output_schema is not None:
        answer = _action_variant("answer", {"data": with_moved_references(bounded_schema(output_schema), _DATA_PLACE)})
    calls = [
        _action_variant("call_tool", {"tool": {"const": spec.name}, "arguments": arguments_schema(spec)})
        for spec in tools
    ]
    return {"anyOf": calls if choice == "any" else [answer, *calls]}


def arguments_schema(spec: ToolSpec) -> dict[str, Any]:
    """Return the arguments that the model sees: the required ones and the main one, because it fills in all it sees.

    A schema with references becomes "any object", because nested references would point to a wrong place.
    """
    if b'"$ref"' in to_json(spec.parameters):
        return {"type": "object"}
    properties = cast("dict[str, dict[str, Any]]", spec.parameters.get("properties", {}))
    names = [n for n in properties if n in spec.parameters.get("required", ()) or n == spec.main_argument]
    return _object_schema({name: _bounded_keywords(properties[name]) for name in names})


def action_instructions(tools: tuple[ToolSpec, ...], output_schema: dict[str, Any] | None = None) -> str:
    """Return the instructions that go with the schema."""
    finish = '{"action": "answer", "text": "..."}'
    if output_schema is not None:
        finish = '{"action": "answer", "data": DATA}, where DATA fits ' + to_json(output_schema).decode()
    lines = [f"- {s.name}({', '.join(arguments_schema(s).get('properties', {}))}): {_tool_summary(s)}" for s in tools]
    return "\n".join(
        [
            "Reply with one JSON object.",
            'To use a tool: {"action": "call_tool", "tool": NAME, "arguments": {...}}',
            f"To finish: {finish}",
            "Tools:",
            *lines,
        ]
    )


def bounded_schema(schema: Any) -> Any:
    """Return the schema with added limits. Every value that fits the result also fits the schema."""
    if isinstance(schema, list):
        return [bounded_schema(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    known = cast("dict[str, Any]", schema)
    inner = {key: value if key in _DATA_KEYWORDS else bounded_schema(value) for key, value in known.items()}
    kinds = known.get("type")
    if "string" in (kinds if isinstance(kinds, list) else [kinds]) and not _BOUNDED_KEYWORDS & known.keys():
        return {**inner, "maxLength": max(STRING_LIMIT, int(known.get("minLength", 0)))}
    if known.get("type") == "array" and "maxItems" not in known:
        return {**inner, "maxItems": max(LIST_LIMIT, int(known.get("minItems", 0)))}
    return inner


def written_call(call: ToolCall) -> str:
    """Return a past call as the model would have written it."""
    return to_json({"action": "call_tool", "tool": call.name, "arguments": call.arguments}).decode()


def partial_answer_text(raw: str) -> str:
    """Return the answer's text so far, from an action that may still be incomplete."""
    text = _parsed_action(raw).get("text")
    return text if isinstance(text, str) else ""


def answer_data(raw: str) -> str:
    """Return an answer's data as JSON, or "" if there is none."""
    action = _parsed_action(raw)
    return to_json(action["data"]).decode() if action.get("action") == "answer" and "data" in action else ""


def parsed_call(raw: str, call_id: str, complete: bool) -> ToolCall | None:
    """Return the call in `raw`, or None for an answer. A cut call, or one with a repeated key, is malformed."""
    action = _parsed_action(raw)
    name, arguments = action.get("tool"), action.get("arguments")
    if action.get("action") != "call_tool" or not isinstance(name, str):
        return None
    if not complete or not isinstance(arguments, dict) or not has_unique_keys(raw):
        return ToolCall(call_id=call_id, name=name, malformed=raw)
    return ToolCall(call_id=call_id, name=name, arguments=cast("dict[str, Any]", arguments))


def _parsed_action(raw: str) -> dict[str, Any]:
    try:
        value = from_json(raw, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _action_variant(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return _object_schema({"action": {"const": name}, **fields})


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _bounded_keywords(schema: dict[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in schema.items() if key not in {"default", "description", "title"}}
    if bare.get("type") == "string" and "enum" not in bare:
        return {"maxLength": STRING_LIMIT, **bare}
    return bare


def _tool_summary(spec: ToolSpec) -> str:
    return spec.description.strip().partition("\n")[0][:160]
