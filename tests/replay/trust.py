"""Runs whose histories are recorded: people and critics decide in them."""

from typing import Any

from temporalio.client import Client, WorkflowHandle

from orga.activities.adapters.policy.engines import ListedTools
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.replay.features import in_none
from tests.replay.plain import a_stage, look
from tests.support.hold import wait_until
from tests.support.runs.critics import a_critic, agents_with_critics, verdict
from tests.support.runs.delegates import Cast, agent, delegates
from tests.support.runs.loop import Ran
from tests.support.runs.questions import send_update
from tests.support.runs.sagas import Ledger, book, fails, pay, saga
from tests.support.runs.sagas import look as look_up

PAY = FakeTool("pay", effect="irreversible", options=ToolOptions(approval=True))


async def criticised_run(client: Client) -> Ran:
    """A call and an answer are each rejected once."""
    critics = a_critic("caution", tools=("look",)), a_critic()
    bad, good = verdict(0.1, 0.1, "Not yet."), verdict()
    steps = [calls("look"), bad, calls("look"), good, answers("early"), bad, answers("done"), good]
    async with a_stage(client, steps, look(), agents=agents_with_critics(*critics, tools=("look",))) as loop:
        return await loop.run()


async def held(client: Client) -> Ran:
    """Two calls wait for approval: one is approved, one is denied."""
    async with a_stage(client, [calls("pay", "pay"), answers("done")], PAY, engine=ListedTools()) as loop:
        handle = await loop.start()
        first, second = await _held(handle, 2)
        await send_update(handle, "approve", {"approval_id": first, "approver": "ada"})
        await send_update(handle, "deny", {"approval_id": second, "approver": "ada", "reason": "once is enough"})
        return await loop.ended(handle)


async def compensated(client: Client) -> Ran:
    ledger = Ledger({"book car": fails()})
    agents = {"default": AgentConfig(tools=(*(tool.name for tool in ledger.tools), "saga"))}
    steps = [saga(book("hotel"), book("car"), pay()), answers("done")]
    async with a_stage(client, steps, *ledger.tools, agents=agents) as loop:
        return await loop.run()


async def alternatives_checked(client: Client) -> Ran:
    """The alternative of a read-only step in a saga would have an effect, so it is not called."""
    return await _with_an_alternative(client)


async def alternatives_before(client: Client) -> Ran:
    """Continue like a run started before `ALTERNATIVES_CHECKED`, which calls it."""
    return await _with_an_alternative(client, patch_activation_callback=in_none)


async def _with_an_alternative(client: Client, **options: Any) -> Ran:
    ledger = Ledger({"look prices": fails()})
    recovery = Recovery(strategy="fallback", max_attempts=1, alternatives=("order",))
    tools = [ledger.tool("look", "read_only", options=ToolOptions(recovery=recovery)), ledger.tool("order")]
    agents = {"default": AgentConfig(tools=("look", "order", "saga"))}
    async with a_stage(client, [saga(look_up()), answers("done")], *tools, agents=agents, **options) as loop:
        return await loop.run()


async def held_below(client: Client) -> Ran:
    """A delegate waits for a person, and its parent waits with it."""
    agents = {"lead": agent("lead", "helper"), "helper": agent("helper", tools=["pay"])}
    cast = Cast({"lead": [delegates("helper"), answers("done")], "helper": [calls("pay"), answers("paid")]})
    async with a_stage(client, cast, PAY, agents=agents, engine=ListedTools()) as loop:
        handle = await loop.start({"task": "lead", "agent": "lead"})

        async def waits_below() -> bool:
            return any(child["held"] for child in (await handle.query("status"))["children"])

        await wait_until(waits_below)
        below = client.get_workflow_handle(f"{handle.id}.1.0")
        (approval,) = await _held(below, 1)
        await send_update(below, "approve", {"approval_id": approval, "approver": "ada"})
        return await loop.ended(handle)


async def _held(handle: WorkflowHandle[Any, Any], count: int) -> list[str]:
    found: list[str] = []

    async def are_held() -> bool:
        found[:] = [question["approval_id"] for question in (await handle.query("status"))["pending_approvals"]]
        return len(found) == count

    await wait_until(are_held)
    return found
