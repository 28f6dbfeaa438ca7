"""The end of a rewound or forked run, with the same checks as for every run."""

from temporalio.client import Client

from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from tests.support.runs.loop import Ran, check_journal, check_replay, histories_of


async def wait_for_rewound(client: Client, run: AgentHandle) -> Ran:
    """Wait for the end, replay the histories of all segments, and read the journal."""
    result = await run.result()
    histories = await histories_of(client, run.id)
    for history in histories:
        await check_replay(history)
    journal = [entry async for entry in read_journal(client, run.id)]
    check_journal(journal)
    return Ran(result, journal, histories, client.get_workflow_handle(run.id), result.model_dump(mode="json"))
