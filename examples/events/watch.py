"""Prints what a run does while it does it: `python watch.py ID`."""

import asyncio
import sys

import orga


async def main(run_id: str) -> None:
    """Print until the run ends."""
    async with orga.connect() as client:
        async for event in orga.AgentHandle(client, run_id).events():
            if isinstance(event, orga.JournalEntry):
                print(event.sequence, event.event, event.data)
            elif event.text:
                print("…", event.text[-80:])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
