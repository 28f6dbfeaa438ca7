"""A call whose arguments policy changes is another call, with another idempotency key."""

from dataclasses import dataclass
from typing import Any

from temporalio.client import Client

from orga.activities.ports import ToolContext, ToolError
from orga.testing import FakeTool, answers, calls
from orga.workflows.decisions.tool_calls.calls import idempotency_key
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import send_update
from tests.support.values.policies import a_verdict

LETTERS = ToolOptions(recovery=Recovery(strategy="dead_letter", max_attempts=1))
FALLBACK = ToolOptions(recovery=Recovery(strategy="fallback", max_attempts=1, alternatives=("transfer",)))


@dataclass
class Capped:
    """A policy engine that lowers a high amount in calls of one purpose."""

    is_embedded = True

    purpose: str

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Lower an amount above 5."""
        call = proposal.call
        is_too_much = call is not None and proposal.purpose == self.purpose and call.arguments.get("amount", 0) > 5
        return a_verdict(True, arguments={"amount": 5} if is_too_much else None)


def paying(name: str, sent: list[tuple[int, str]], failures: int = 0, options: ToolOptions = LETTERS) -> FakeTool:
    """Return a tool that keeps each amount with its key, and fails at first."""

    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        sent.append((arguments["amount"], context.idempotency_key))
        if len(sent) <= failures:
            raise ToolError("down")
        return "paid"

    return FakeTool(name, body, "idempotent", options=options)


async def test_a_changed_requeued_call_has_another_key(client: Client) -> None:
    """With the key of the original amount a service might take the call for one that it has already done."""
    sent, model = list[tuple[int, str]](), Hold()
    tool, look = paying("pay", sent, failures=1), FakeTool("look")
    steps = [calls("pay", arguments={"amount": 9}), model.step(calls("look")), answers()]
    async with a_loop(client, steps, tool, look, engine=Capped("requeue")) as loop:
        handle = await loop.start()
        await model.reached()
        await send_update(handle, "requeue", "1.0")
        model.go.set()
        await loop.ended(handle)
    (first, key), (second, other) = sent
    assert (first, second, key == other) == (9, 5, False)


async def test_a_changed_fallback_has_another_key(client: Client) -> None:
    failed, sent = list[tuple[int, str]](), list[tuple[int, str]]()
    tools = [paying("pay", failed, failures=1, options=FALLBACK), paying("transfer", sent)]
    steps = [calls("pay", arguments={"amount": 9}), answers()]
    async with a_loop(client, steps, *tools, engine=Capped("fallback")) as loop:
        ran = await loop.run()
    changed = ToolCall(call_id="any", name="transfer", arguments={"amount": 5})
    assert sent == [(5, idempotency_key(ran.handle.first_execution_run_id or "", "1.0.f0", changed))]
