"""OpenAI Agents SDK: its runner in a workflow of its own, by Temporal's plugin."""

from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta

from agents import Agent, Runner
from errand import ADDRESS, pay_now
from openai_agents_model import PROVIDER
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.openai_agents import OpenAIAgentsPlugin
from temporalio.openai_agents.workflow import activity_as_tool
from temporalio.worker import Worker


@activity.defn
def pay(number: int) -> str:
    """Make a payment."""
    return pay_now(number)


@workflow.defn
class Clerk:
    @workflow.run
    async def run(self, task: str, most: int) -> str:
        tools = [activity_as_tool(pay, start_to_close_timeout=timedelta(seconds=60))]
        clerk = Agent(name="clerk", instructions="Pay.", tools=tools)
        return (await Runner.run(clerk, task, max_turns=most)).final_output


class Session:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def start(self, run: str, task: str, most: int) -> str:
        return await self.client.execute_workflow(Clerk.run, args=[task, most], id=run, task_queue="rivals")

    async def resume(self, run: str) -> str:
        return await self.client.get_workflow_handle(run).result()


@asynccontextmanager
async def session() -> AsyncGenerator[Session]:
    client = await Client.connect(ADDRESS, plugins=[OpenAIAgentsPlugin(model_provider=PROVIDER)])
    with ThreadPoolExecutor() as threads:
        async with Worker(client, task_queue="rivals", workflows=[Clerk], activities=[pay], activity_executor=threads):
            yield Session(client)
