"""Pydantic AI: its agent made durable by Temporal, in a workflow of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from errand import ADDRESS, pay_now
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
    from pydantic_ai.usage import UsageLimits
    from pydantic_ai_model import MODEL

CLERK = Agent(MODEL, name="clerk", instructions="Pay.", capabilities=[TemporalDurability()])


@CLERK.tool_plain
def pay(number: int) -> str:
    """Make a payment."""
    return pay_now(number)


@workflow.defn
class Clerk(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [CLERK]

    @workflow.run
    async def run(self, task: str, most: int) -> str:
        return (await CLERK.run(task, usage_limits=UsageLimits(request_limit=most))).output


class Session:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def start(self, run: str, task: str, most: int) -> str:
        return await self.client.execute_workflow(Clerk.run, args=[task, most], id=run, task_queue="rivals")

    async def resume(self, run: str) -> str:
        return await self.client.get_workflow_handle(run).result()


@asynccontextmanager
async def session() -> AsyncGenerator[Session]:
    client = await Client.connect(ADDRESS, plugins=[PydanticAIPlugin()])
    async with Worker(client, task_queue="rivals", workflows=[Clerk]):
        yield Session(client)
