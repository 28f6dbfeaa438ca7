"""Tools that look up what a task refers to."""

from collections.abc import Callable
from typing import Any

from orga.activities.ports import ToolContext
from orga.testing import FakeTool

Body = Callable[[dict[str, Any], ToolContext], Any]


def fetching(body: Body = lambda arguments, context: f"page of {arguments['url']}") -> FakeTool:
    return a_tool("fetch_url", "url", body)


def issues(body: Body = lambda arguments, context: f"issue {arguments['reference']}") -> FakeTool:
    return a_tool("read_issue", "reference", body)


def a_tool(name: str, argument: str, body: Body) -> FakeTool:
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return FakeTool(name, body, parameters=schema)
