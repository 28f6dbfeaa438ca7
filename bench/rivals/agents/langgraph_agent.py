"""LangGraph: the agent of LangChain, its checkpoints in SQLite."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from errand import FOLDER, pay_now
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph_model import MODEL


@tool
def pay(number: int) -> str:
    """Make a payment."""
    return pay_now(number)


class Session:
    def __init__(self, saver: AsyncSqliteSaver) -> None:
        self.agent = create_agent(MODEL, [pay], system_prompt="Pay.", checkpointer=saver)

    async def start(self, run: str, task: str, most: int) -> str:
        return await self._go({"messages": [("user", task)]}, run, most)

    async def resume(self, run: str) -> str:
        return await self._go(None, run, 100)

    async def _go(self, given: dict | None, run: str, most: int) -> str:
        config = {"configurable": {"thread_id": run}, "recursion_limit": 3 * most}
        state = await self.agent.ainvoke(given, config, durability="sync")
        return state["messages"][-1].text


@asynccontextmanager
async def session() -> AsyncGenerator[Session]:
    async with AsyncSqliteSaver.from_conn_string(str(FOLDER / "checkpoints.sqlite")) as saver:
        yield Session(saver)
