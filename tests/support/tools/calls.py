"""Calls of tools as the activity makes them."""

import pytest

from orga.activities.ports import Tool, ToolContext, ToolError

CONTEXT = ToolContext(call_id="c1", idempotency_key="k1")


async def result(tool: Tool, **arguments: object) -> str:
    """Return the content of one call."""
    return (await tool.call(arguments, CONTEXT)).content


async def failure(tool: Tool, **arguments: object) -> ToolError:
    """Return the error of one call."""
    with pytest.raises(ToolError) as caught:
        await tool.call(arguments, CONTEXT)
    return caught.value
