"""A final answer that has to fit a schema: by the provider's own means, by a forced tool, or by asking for it."""

from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.schema_shape import as_root, fits_as_root, is_strict
from orga.activities.ports import ModelRequest
from orga.workflows.types.json_text import FINAL_ANSWER
from orga.workflows.types.messages import Reply
from orga.workflows.types.parts import ToolCall, with_text, without_calls
from orga.workflows.types.tools import ToolSpec

_WRAP = "value"
"""The property that holds an answer whose schema is no object at its top."""


def shaped(request: ModelRequest, dialect: Dialect) -> ModelRequest:
    """Return the request as it is sent; it keeps its `output_schema` only where the protocol has a place for it.

    Beside tools that place is used only where it is known to leave calls possible: Ollama and its like hold
    everything that the model writes to the schema, so that it could never call a tool.
    """
    schema = request.output_schema
    if schema is None:
        is_enforced = dialect.sure_schema and _is_taken(request.reply_schema, dialect)
        return replace(request, output_schema=request.reply_schema) if is_enforced else request
    if _is_taken(schema, dialect) and (dialect.sure_schema or not request.tools):
        return request if dialect.sure_schema else _told(request, schema)
    if dialect.answer_tool:
        return replace(request, tools=(*request.tools, _tool(schema)), tool_choice="any", output_schema=None)
    return replace(_told(request, schema), output_schema=None)


def taken(reply: Reply, schema: dict[str, Any]) -> Reply:
    """Return the reply with a call of the tool as its text; beside other calls it came too early and is dropped."""
    answers = [call for call in reply.calls if call.name == FINAL_ANSWER]
    if not answers:
        return reply
    parts = without_calls(reply.parts, {FINAL_ANSWER})
    if len(answers) < len(reply.calls):
        return reply.with_differences(parts=parts)
    stale = ("parts", *(["finish"] if reply.finish == "tool_calls" else []))
    fields: dict[str, Any] = {name: getattr(reply, name) for name in reply.model_fields_set.difference(stale)}
    return Reply(parts=with_text(parts, _json(answers[0], schema)), **fields)


def _is_taken(schema: dict[str, Any] | None, dialect: Dialect) -> bool:
    """Return whether the protocol's own place takes this schema."""
    if schema is None or not dialect.response_format:
        return False
    return fits_as_root(schema) and (is_strict(schema) or not dialect.strict_schema)


def _json(call: ToolCall, schema: dict[str, Any]) -> str:
    if call.malformed is not None:
        return call.malformed
    is_wrapped = not fits_as_root(schema) and call.arguments.keys() == {_WRAP}
    return to_json(call.arguments[_WRAP] if is_wrapped else call.arguments).decode()


def _tool(schema: dict[str, Any]) -> ToolSpec:
    return ToolSpec(
        name=FINAL_ANSWER,
        description=(
            "Give the final answer to the task. Call it once, alone, when nothing is left to find out; "
            "its arguments are the answer, and plain text is not."
        ),
        parameters=as_root(schema, _WRAP),
    )


def _told(request: ModelRequest, schema: dict[str, Any]) -> ModelRequest:
    text = "Your final answer is one JSON value that fits this JSON Schema, with nothing before or after it:\n"
    return replace(request, system=(*request.system, text + to_json(schema).decode()))
