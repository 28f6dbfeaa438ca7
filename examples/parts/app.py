"""An agent whose model, policy, critic, summarizer, knowledge and pictures are the objects of `parts.py`.

python app.py "What is a lamp?"
"""

import asyncio
import sys

from parts import FirstLines, HouseModel, LengthCritic, MemoryBlobs, MemoryStore, OfficeHours

import orga
from orga.ports import Critic, Dimension

WORDS = {"lamp": "A lamp is a source of light.", "train": "A train runs on rails."}


@orga.tool(effect="read_only")
def look_up(word: str) -> str:
    """Look up a word.

    Args:
        word: One word, in lower case.
    """
    return WORDS.get(word, f"There is no entry for {word}.")


AGENT = orga.Agent(
    name="default",
    model="code:house",
    tools=[look_up],
    critics=[Critic(name="short", model="code:length", rubric={"length": Dimension(weight=1.0)})],
    config=orga.LoopConfig(context_strategy="anchored_summary"),
)


async def main(task: str) -> None:
    """Run the agent once, and print its answer."""
    async with orga.worker(
        agents=[AGENT],
        models={"house": HouseModel()},
        critics={"length": LengthCritic()},
        policy=OfficeHours(),
        knowledge=MemoryStore(),
        summarizer=FirstLines(),
        blobs=MemoryBlobs(),
    ) as client:
        run = await orga.start_agent(client, task)
        print((await run.result()).output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "What is a lamp?"))
