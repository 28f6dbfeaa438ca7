"""A customer desk: its own worker, with an agent in it. See docs/embedding.md.

python app.py "When does ORD-7 arrive?"
"""

import asyncio
import os
import sys
import uuid
from pathlib import Path

from letters import file_letter
from orders import look_up_order
from temporalio.client import Client
from temporalio.worker import Worker
from ticket import Ticket

from orga import Agent, OrgaPlugin

HERE = Path(__file__).parent

CLERK = Agent(
    "clerk",
    instructions="Answer the customer from the handbook and from the order. Say which page says so.",
    tools=["list_files", "read_file", "search_text", look_up_order],
    config={
        "pre_hydration": {
            "custom_patterns": [{"ref_type": "order", "pattern": r"ORD-\d+"}],
            "resolution_tools": {"order": "look_up_order"},
        }
    },
)


async def main(question: str) -> str:
    """Answer one question, and return the file of the letter."""
    plugin = OrgaPlugin(agents=[CLERK], policy=HERE / "policies", root=HERE / "handbook")
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"), plugins=[plugin])
    async with Worker(client, task_queue="desk", workflows=[Ticket], activities=[file_letter]):
        ticket = f"ticket-{uuid.uuid4()}"
        return await client.execute_workflow(Ticket.run, question, id=ticket, task_queue="desk")


if __name__ == "__main__":
    print(Path(asyncio.run(main(sys.argv[1]))).read_text(encoding="utf-8"))
