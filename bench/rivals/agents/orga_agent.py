"""orga: an agent and a tool in code, with a worker."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from errand import ADDRESS, EFFECT, pay_now
from orga_model import plugin_of
from temporalio.client import Client
from temporalio.worker import Worker

from orga import Agent, start_agent, tool


@tool(effect=EFFECT)
def pay(number: int) -> str:
    """Make a payment."""
    return pay_now(number)


CLERK = Agent("clerk", instructions="Pay.", tools=[pay])


class Session:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def start(self, run: str, task: str, most: int) -> str:
        given = {"task": task, "agent": "clerk", "config": {"max_iterations": most}}
        handle = await start_agent(self.client, given, workflow_id=run, task_queue="rivals")
        return (await handle.result()).output

    async def resume(self, run: str) -> str:
        return (await self.client.get_workflow_handle(run).result())["output"]


@asynccontextmanager
async def session() -> AsyncGenerator[Session]:
    client = await Client.connect(ADDRESS, plugins=[plugin_of(CLERK)])
    async with Worker(client, task_queue="rivals"):
        yield Session(client)
