"""Values of tools in runs: policies judge by them, steps of goals refer to them, and the history has each once."""

import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client, WorkflowHistory

from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.activities.adapters.tools.python_function import PythonFunction
from orga.activities.tools_api import tool
from orga.client.proof.verify import verify
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.mcp import orders
from tests.support.mcp.loop import an_mcp_loop
from tests.support.model.goals import GoalModel, a_step, evaluation_reply, says
from tests.support.runs.goals import pursue
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import tool_results_in
from tests.support.values.policies import a_folder

POLICIES = """
@id("looking") permit (principal, action == Action::"tool_call", resource) when { resource.effect == "read_only" };
@id("answering") permit (principal, action == Action::"respond", resource);
@id("small") permit (principal, action == Action::"tool_call", resource == Tool::"refund")
when { context.arguments has number && context.values has ORDER && context.values.ORDER has number
  && context.values.ORDER.number == context.arguments.number
  && context.values.ORDER has total && context.values.ORDER.total.lessThan(decimal("50.0")) };
"""


class Order(BaseModel):
    """An order."""

    number: str
    total: float


@tool(effect="read_only")
def get_order(number: str) -> Order:
    """Return an order."""
    return Order(number=number, total={"A-1": 40}.get(number, 400))


def shown(history: WorkflowHistory) -> str:
    return "".join(event.SerializeToString().decode("utf-8", "replace") for event in history.events)


async def test_a_policy_judges_by_the_latest_value_of_a_tool(client: Client, tmp_path: Path) -> None:
    engine = CedarPolicies(a_folder(tmp_path, it=POLICIES.replace("ORDER", "get_order")))
    number, other = {"number": "A-1"}, {"number": "A-2"}
    script = [
        calls("refund", arguments=number),
        calls("get_order", arguments=number),
        calls("refund", arguments=other),
        calls("refund", arguments=number),
        calls("get_order", arguments=other),
        calls("refund", arguments=other),
        answers(),
    ]
    refund = FakeTool(
        "refund", effect="irreversible", parameters={"type": "object", "properties": {"number": {"type": "string"}}}
    )
    async with a_loop(client, script, PythonFunction(get_order), refund, engine=engine) as loop:
        ran = await loop.run()
        assert (await verify(client, ran.handle.id)).ok
    assert len(refund.contexts) == 1
    assert [text[:15] == "[Policy denied]" for text in tool_results_in(loop, -1)] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    assert shown(ran.history).count('{\\"number\\":\\"A-1\\",\\"total\\":40.0}') == 1
    assert [each["value"] for entry in ran.journal for each in entry.data.get("outcomes", ()) if "value" in each] == [
        {"number": "A-1", "total": 40.0},
        {"number": "A-2", "total": 400.0},
    ]


async def test_a_servers_structured_content_is_checked_and_seen_by_policies(client: Client, tmp_path: Path) -> None:
    engine = CedarPolicies(a_folder(tmp_path, it=POLICIES.replace("ORDER", "shop_get_order")))
    servers = {
        "shop": McpServer(command=sys.executable, args=(orders.__file__,), options=ToolOptions(effect="read_only"))
    }
    script = [
        calls("shop_get_order", "shop_list_orders", "shop_say", arguments={"number": "A-1", "text": "hello"}),
        calls("refund", arguments={"number": "A-1"}),
        answers(),
    ]
    refund = FakeTool("refund", effect="irreversible", parameters={"type": "object"})
    listed = ["shop_*", "refund"]
    async with an_mcp_loop(client, script, servers, refund, listed=listed, env={}, engine=engine) as loop:
        await loop.run()
    one, several, text, refunded = tool_results_in(loop, -1)
    assert one == '{"number":"A-1","total":40.0,"items":["lamp"]}'
    assert several.startswith('{"result":[{"number":"A-1"')
    assert text == "hello"
    assert (refunded, len(refund.contexts)) == ("ok", 1)


async def test_a_step_of_a_goal_refers_to_the_value_of_another(client: Client) -> None:
    taken = list[dict[str, Any]]()

    def refund(arguments: dict[str, Any], _: object) -> str:
        taken.append(arguments)
        return "done"

    order = {"$step": "a", "path": ["total"]}
    steps = [
        a_step("a", "get_order", number="A-1"),
        a_step("b", "refund", amount=order, of={"number": {"$step": "a", "path": "number"}}),
    ]
    wrong = [a_step("x", "refund"), a_step("y", "refund", amount={"$step": "x", "path": ["total"]})]
    model = GoalModel(
        plan=[says(steps=wrong), says(steps=steps)], evaluate=[evaluation_reply("a"), evaluation_reply("b")]
    )
    schema = {"type": "object", "properties": {"amount": {"type": "number"}}}
    pay = FakeTool("refund", refund, parameters=schema)
    async with a_loop(client, model, PythonFunction(get_order), pay) as loop:
        pursued = await pursue(loop)
    assert pursued.reason == "completed"
    assert taken == [{"amount": 40.0, "of": {"number": "A-1"}}]
    assert "input" not in model.turns
    assert "y: arguments: 'x' is no step of this plan whose skill returns a value" in model.asked[1][1]
    assert "- get_order: Return an order. Returns {number, total}" in model.asked[0][1]
