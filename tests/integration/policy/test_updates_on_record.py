"""An update is not sent during a workflow task, because a query may have shown what that task has yet to record."""

import asyncio
from typing import Any

from temporalio.client import Client, Interceptor, OutboundInterceptor

from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.hold import Hold, wait_until
from tests.support.runs.loop import a_loop
from tests.support.values.policies import a_verdict


class Sent(Interceptor):
    """Records the requests of a client to the server."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Noting(next, self.calls)


class _Noting(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, calls: list[str]) -> None:
        super().__init__(next)
        self._calls = calls

    async def describe_workflow(self, input: Any) -> Any:
        found = await super().describe_workflow(input)
        self._calls.append("under way" if found.raw_description.HasField("pending_workflow_task") else "on record")
        return found

    async def start_workflow_update(self, input: Any) -> Any:
        self._calls.append("update")
        return await super().start_workflow_update(input)


async def test_an_update_waits_for_the_workflow_task(client: Client) -> None:
    judging, looking, sent = Hold(), Hold(), Sent()

    class Slow:
        is_embedded = True

        async def judge(self, proposal: GateRequest) -> Verdict:
            return await judging.then(a_verdict(True))

    config = client.config()
    config["interceptors"] = [*config["interceptors"], sent]
    look = FakeTool("look", lambda arguments, context: looking.then("seen"))
    async with a_loop(client, [calls("look"), answers()], look, engine=Slow()) as loop:
        handle = await loop.start(max_tool_calls=5)
        await judging.reached()
        update = asyncio.create_task(AgentHandle(Client(**config), handle.id).extend_budget(max_tool_calls=9))
        await wait_until(lambda: _asked_twice(sent))
        assert "update" not in sent.calls
        judging.go.set()
        await update
        looking.go.set()
        await loop.ended(handle)

    assert sent.calls[sent.calls.index("update") - 1] == "on record"


async def _asked_twice(sent: Sent) -> bool:
    return sent.calls.count("under way") > 2
