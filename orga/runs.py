"""Functions about existing runs: lists, the inbox, journals, and changes or checks of a run's past.

Use them as `orga.runs.list(client)`. `orga.start_agent` starts a run, and `orga.AgentHandle(client, id)` steers it.
"""

from collections.abc import AsyncGenerator, Sequence

from temporalio.client import Client

from orga.client.cli.inspect.journal import Timeline
from orga.client.journal.laws import Check, Verification
from orga.client.journal.reading import read_journal
from orga.client.past.fork import fork
from orga.client.past.rewind import rewind
from orga.client.proof.verify import verify
from orga.client.runs.inbox import InboxEntry, inbox
from orga.client.runs.listing import ListedRun, RunFilter, listed_runs, with_details
from orga.client.runs.message_forms import anthropic_messages, openai_messages
from orga.workflows.types.status import JournalEntry

__all__ = [
    "Check",
    "InboxEntry",
    "ListedRun",
    "Verification",
    "anthropic_messages",
    "fork",
    "inbox",
    "journal",
    "list",
    "openai_messages",
    "rewind",
    "timeline",
    "verify",
]


async def list(
    client: Client,
    *,
    running: bool = False,
    agent: str | None = None,
    tenant: str | None = None,
    dead_letters: bool = False,
    query: str | None = None,
    limit: int = 20,
) -> Sequence[ListedRun]:
    """Return the newest runs, newest first, as `orga list` shows them.

    Args:
        client: From `connect`, `orga.worker` or your own.
        running: Return only live runs.
        agent: Return only runs of this agent.
        tenant: Return only runs for this tenant.
        dead_letters: Return only runs with calls that were given up.
        query: A further condition in Temporal's visibility query language.
        limit: The maximum number of runs.

    Raises:
        InvalidInput: The server does not understand the query.
        OrgaError: The server does not list runs.
    """
    return await with_details(
        client, await listed_runs(client, RunFilter(running, agent, tenant, query, dead_letters), limit)
    )


async def journal(client: Client, workflow_id: str) -> AsyncGenerator[JournalEntry]:
    """Yield the entries of a run's journal so far, oldest first. `AgentHandle.events` also yields later ones.

    No worker is needed. If the server has deleted the run's oldest segments, the first entry is `PastMissing`. The
    entries of a delegated run come before the `DelegationEnded` of its parent. `run` in an entry's data names the run
    it is from.

    Args:
        client: From `connect`, `orga.worker` or your own.
        workflow_id: The run's id.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        ServerLost: The server cannot be reached at the moment.
    """
    async for entry in read_journal(client, workflow_id):
        yield entry


async def timeline(client: Client, workflow_id: str) -> AsyncGenerator[str]:
    """Yield the journal as text lines, as `orga journal` prints them. The rest is as for `journal`."""
    lines = Timeline()
    async for entry in read_journal(client, workflow_id):
        for line in lines.lines(entry):
            yield line
