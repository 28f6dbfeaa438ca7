"""Runs from outside: lists, the inbox, journals, and what changes or checks a run's past. `orga.runs.list(client)`.

A run is started by `orga.start_agent` and steered by its handle, `orga.AgentHandle(client, id)`.
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
from orga.client.runs.listing import ListedRun, RunFilter, rows, with_details
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
        running: Leave out those that have ended.
        agent: Only those of this agent.
        tenant: Only those for this tenant.
        dead_letters: Only those with calls that were given up.
        query: And this, in Temporal's visibility query language.
        limit: At most so many.

    Raises:
        InvalidInput: The server does not understand the query.
        OrgaError: The server does not list runs.
    """
    return await with_details(client, await rows(client, RunFilter(running, agent, tenant, query, dead_letters), limit))


async def journal(client: Client, workflow_id: str) -> AsyncGenerator[JournalEntry]:
    """Yield the entries of a run's journal up to now, oldest first; `AgentHandle.events` follows it.

    No worker is needed. Where the server has forgotten the oldest runs, the first entry is `PastMissing`. The entries
    of a delegated run come before the `DelegationEnded` of its parent; `run` in an entry's data says whose it is.

    Args:
        client: From `connect`, `orga.worker` or your own.
        workflow_id: The run.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        ServerLost: The server cannot be reached for the moment.
    """
    async for entry in read_journal(client, workflow_id):
        yield entry


async def timeline(client: Client, workflow_id: str) -> AsyncGenerator[str]:
    """Yield the journal as lines for people, as `orga journal` prints them; the rest as for `journal`."""
    lines = Timeline()
    async for entry in read_journal(client, workflow_id):
        for line in lines.lines(entry):
            yield line
