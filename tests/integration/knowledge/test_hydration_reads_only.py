"""Lookups before the first step only read: the task's author chooses them, and no critic has reviewed them yet."""

from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError

from orga.activities.ports import ToolContext, ToolError
from orga.testing import FakeTool, answers
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions
from tests.support.runs.critics import a_critic, agents_with_critics
from tests.support.runs.loop import a_loop

TICKETS = {"custom_patterns": [{"ref_type": "ticket", "pattern": r"T-\d"}], "resolution_tools": {"ticket": "pay"}}


def pay(effect: Effect = "irreversible") -> FakeTool:
    schema = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
    return FakeTool("pay", effect=effect, parameters=schema)


def fetch(options: ToolOptions | None = None) -> FakeTool:
    def fails(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolError("down")

    schema = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
    return FakeTool("fetch_url", fails, parameters=schema, options=options or ToolOptions(max_attempts=1))


@pytest.mark.parametrize("kind", ["ticket", "url"])
@pytest.mark.parametrize("effect", ["irreversible", "idempotent"])
async def test_a_starter_cannot_name_a_tool_that_acts(client: Client, kind: str, effect: Effect) -> None:
    tool = pay(effect)
    config = TICKETS | {"resolution_tools": {kind: "pay"}}
    async with a_loop(
        client, [answers()], tool, agents=agents_with_critics(a_critic(tools=("pay",)), tools=("pay",))
    ) as loop:
        handle = await loop.start("T-1 and https://a.io", pre_hydration=config)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    assert f"config.pre_hydration.resolution_tools.{kind}: pay is {effect}; only a read_only" in str(failed.value.cause)
    assert tool.contexts == []


@pytest.mark.parametrize("where", ["of the starter", "of the agent", "of the tool"])
async def test_a_failed_lookup_is_not_replaced_by_a_tool_that_acts(client: Client, where: str) -> None:
    """A critic would have to review that call, and none can before the first reasoning step."""
    tool = pay()
    to_pay = Recovery(strategy="fallback", alternatives=("pay",), max_attempts=1)
    options = ToolOptions(max_attempts=1, recovery=to_pay if where == "of the tool" else None)
    config = LoopConfig(recovery=to_pay) if where == "of the agent" else LoopConfig()
    given: dict[str, Any] = {"recovery": to_pay.model_dump(mode="json")} if where == "of the starter" else {}
    agent = AgentConfig(tools=("pay", "fetch_url"), critics=(a_critic(tools=("pay",)),), config=config)
    async with a_loop(client, [answers()], tool, fetch(options), agents={"default": agent}) as loop:
        ran = await loop.run("see https://a.io", **given)
    assert tool.contexts == []
    assert ran.result.termination.reason == "completed"
