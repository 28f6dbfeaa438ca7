"""The small local model under a schema: its text may be foolish, but its form is valid."""

from typing import Any

import pytest

from orga.activities.adapters.offline.local_model import LocalProvider
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.ports import ModelRequest
from orga.workflows.types.json_text import parsed_answer_json
from orga.workflows.types.messages import Message
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.one_thread import one_thread

__all__ = ["one_thread"]

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "capital": {"type": "string", "maxLength": 30},
        "inhabitants": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["city", "village"]},
    },
    "required": ["capital", "inhabitants", "kind"],
    "additionalProperties": False,
}
LIST = {"type": "array", "items": {"$ref": "#/$defs/word"}, "maxItems": 2, "$defs": {"word": {"enum": ["a", "b"]}}}
CLOCK = ToolSpec(name="get_time", parameters={"type": "object", "properties": {}}, description="Tell the time.")
QUESTION = Message.of("user", "What is the capital of France?")


@pytest.mark.parametrize(
    ("schema", "tools"),
    [
        pytest.param(CITY, (), id="an object"),
        pytest.param(LIST, (), id="a list with a reference"),
        pytest.param(CITY, (CLOCK,), id="an object, next to a tool"),
        pytest.param(LIST, (CLOCK,), id="a list with a reference, next to a tool"),
    ],
)
async def test_the_answer_fits_the_schema(schema: dict[str, Any], tools: tuple[ToolSpec, ...]) -> None:
    request = ModelRequest(
        model="smollm2",
        messages=(QUESTION,),
        tools=tools,
        output_schema=schema,
        settings=ModelSettings(temperature=0.0),
        max_output_tokens=120,
    )
    reply = await LocalProvider().complete(request, lambda piece: None)
    if tools and reply.calls:
        assert [call.name for call in reply.calls] == ["get_time"]
    else:
        assert argument_errors(schema, parsed_answer_json(reply.text)) == []
        assert reply.finish == "stop"
