"""Deferred tools, the calls that wait for their results, and what completes them."""

from typing import Any

import pytest
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError

import orga
from orga.activities.ports import Tool
from orga.client.testing.script import Step
from orga.testing import answers, calls
from orga.workflows.types.tool_calls.tools import Effect
from tests.support.hold import wait_until
from tests.support.runs.questions import is_on_record, send_update

PARAMETERS = {"type": "object", "properties": {"person": {"type": "string"}}, "required": ["person"]}
SCORE = {"type": "object", "properties": {"score": {"type": "integer", "minimum": 0}}, "required": ["score"]}


def a_check(name: str = "check", effect: Effect = "idempotent", **more: Any) -> Tool:
    """Return a deferred tool."""
    given: dict[str, Any] = {"description": "Check it.", "parameters": PARAMETERS, "effect": effect, **more}
    return orga.DeferredTool(name, **given)


def checks(*names: str) -> list[Step]:
    """Return a model that calls these tools at once, by default `check`, and then answers."""
    return [calls(*(names or ("check",)), arguments={"person": "ada"}), answers("done")]


async def waiting_calls(handle: WorkflowHandle[Any, Any], count: int = 1) -> list[dict[str, Any]]:
    """Return what a run waits for, once it waits for so many results."""
    found: list[dict[str, Any]] = []

    async def are_there() -> bool:
        found[:] = [wait for wait in (await handle.query("status"))["waiting"] if wait["kind"] == "result"]
        return len(found) == count and await is_on_record(handle)

    await wait_until(are_there)
    return found


def completion(wait: dict[str, Any], result: Any = "fine", **more: Any) -> dict[str, Any]:
    """Return the argument of `complete_tool_call` for a waiting call."""
    ends = {} if "error" in more or "result_json" in more else {"result": result}
    return {"idempotency_key": wait["wait_id"], "by": "bureau", **ends, **more}


async def refusal(handle: WorkflowHandle[Any, Any], given: Any) -> str:
    """Return why a run refuses a completion."""
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await send_update(handle, "complete_tool_call", given)
    return str(refused.value.cause)
