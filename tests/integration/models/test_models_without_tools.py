"""A run whose model has no tools in its protocol: the server refuses them, so calls are read from the text."""

import json
from typing import Any

from temporalio.client import Client

from orga.activities.adapters import http
from orga.testing import FakeTool
from tests.support.model.providers import chunk, provider, stream_response
from tests.support.runs.loop import Deny, a_loop

READ = '{"action": "call_tool", "tool": "read", "arguments": {"path": "a.txt"}}'
DELETE = '{"action": "call_tool", "tool": "delete", "arguments": {"path": "a.txt"}}'


class WithoutTools:
    """A server of a model whose template has no tools."""

    def __init__(self) -> None:
        self.refused = 0
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, request: http.Request) -> http.Response:
        body = json.loads(request.content)
        if "tools" in body or any(message["role"] == "tool" for message in body["messages"]):
            self.refused += 1
            return http.Response(400, json={"error": {"message": f"{body['model']} does not support tools"}})
        self.bodies.append(body)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        text = (f"I look.\n{READ}\n{DELETE}", "It holds 42.")[min(turn, 1)]
        return stream_response(chunk(content=text), chunk("stop"), "[DONE]")


async def test_a_run_calls_its_tools_and_the_gate_judges_each_call(client: Client) -> None:
    server = WithoutTools()
    deleted: list[Any] = []

    async def read(arguments: dict[str, Any], context: Any) -> str:
        return f"{arguments['path']}: 42"

    async def delete(arguments: dict[str, Any], context: Any) -> str:
        deleted.append(arguments)
        return "gone"

    path = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = (FakeTool("read", read, "read_only", path), FakeTool("delete", delete, "irreversible", path))
    async with a_loop(client, provider("ollama", server), *tools, engine=Deny("delete")) as loop:
        ran = await loop.ended(await loop.start("What is in a.txt?"))

    assert (ran.result.output, ran.result.termination.reason) == ("It holds 42.", "completed")
    assert (server.refused, deleted) == (1, [])
    first, second = [message["content"] for message in server.bodies[-1]["messages"][-2:]]
    assert (first.startswith("Result of read:\n"), "a.txt: 42" in first) == (True, True)
    assert second.startswith("Result of delete (it failed):\n[Policy denied] delete is forbidden")
