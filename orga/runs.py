"""Functions about existing runs: lists, the inbox, journals, and changes or checks of a run's past.

Use them as `orga.runs.list(client)`. `orga.start_agent` starts a run, and `orga.AgentHandle(client, id)` steers it.
"""

from collections.abc import AsyncGenerator, Sequence

from temporalio.client import Client

from orga.client.cli.inspect.journal import Timeline
from orga.client.errors import NotAnAgent
from orga.client.journal.laws import Check, Verification
from orga.client.journal.reading import read_journal
from orga.client.journal.timeline_reader import (
    FoundText,
    FoundTexts,
    NoRecord,
    NoText,
    TimelinePage,
    Timelines,
    timelines_of,
)
from orga.client.journal.timeline_records import (
    IterationRecord,
    SearchLimits,
    TimelineCall,
    TimelineDelegate,
    TimelineEvent,
    TimelineText,
    TimelineUsage,
)
from orga.client.journal.watcher import LiveActivity, activities_in_flight
from orga.client.past.fork import fork
from orga.client.past.rewind import rewind
from orga.client.proof.verify import verify
from orga.client.runs.agents import AgentHandle
from orga.client.runs.attachments import Attachable, kept_attachments, store_of
from orga.client.runs.goals import GoalHandle
from orga.client.runs.inbox import InboxEntry, inbox
from orga.client.runs.listing import ListedRun, RunFilter, listed_runs, with_details
from orga.client.runs.message_forms import anthropic_messages, openai_messages
from orga.client.runs.sessions import SessionHandle
from orga.client.runs.settings import RecordedSettings, read_settings, save_settings, settings_versions
from orga.workflows.types.input import Attachment
from orga.workflows.types.names import GOAL_WORKFLOW, RUN_WORKFLOWS, SESSION_WORKFLOW
from orga.workflows.types.settings import SettingsVersion
from orga.workflows.types.status import JournalEntry

__all__ = [
    "Check",
    "FoundText",
    "FoundTexts",
    "InboxEntry",
    "IterationRecord",
    "ListedRun",
    "NoRecord",
    "NoText",
    "RecordedSettings",
    "SearchLimits",
    "SettingsVersion",
    "TimelineCall",
    "TimelineDelegate",
    "TimelineEvent",
    "TimelinePage",
    "TimelineText",
    "TimelineUsage",
    "Timelines",
    "Verification",
    "anthropic_messages",
    "fork",
    "handle",
    "in_flight",
    "inbox",
    "journal",
    "journal_lines",
    "keep_attachments",
    "list",
    "openai_messages",
    "read_settings",
    "rewind",
    "save_settings",
    "settings_versions",
    "timeline",
    "timelines_of",
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
    """Yield the entries of a run's journal so far, oldest first. `AgentHandle.events` also yields later entries.

    No worker is needed. If the server has deleted the run's oldest segments, the first entry is `PastMissing`. The
    entries of a delegated run come before the `DelegationEnded` of its parent, and have its id as `run`.

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


async def journal_lines(client: Client, workflow_id: str) -> AsyncGenerator[str]:
    """Yield the journal as the text lines that `orga journal` prints. Arguments and errors are those of `journal`."""
    lines = Timeline()
    async for entry in read_journal(client, workflow_id):
        for line in lines.lines(entry):
            yield line


async def keep_attachments(client: Client, files: Sequence[Attachable]) -> Sequence[Attachment]:
    """Put pictures and PDFs into the store, and return references to them for `orga.workflow.run_agent`.

    Args:
        client: The client. The files go into the store of its plugin, if you gave it one, or into the folder `blobs`.
        files: At most 20 paths, bytes or `orga.Media`.

    Raises:
        InvalidInput: A file cannot be used. The text names it.
    """
    return await kept_attachments(files, store_of(client))


async def timeline(
    client: Client,
    workflow_id: str,
    *,
    around: int | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int = 50,
) -> TimelinePage:
    """Return a page of a run's iterations with their texts, one record each. Without a position, return the newest.

    No worker is needed. Long texts are cut after 2,000 characters. `timelines_of(client)` reads and searches whole
    texts. Older segments of a long run are read only if they are asked for.

    Args:
        client: From `connect`, `orga.worker` or your own.
        workflow_id: The run's id.
        around: Return the iterations around this number.
        before: Return the last iterations before this number.
        after: Return the first iterations after this number.
        limit: The most records, from 1 to 100. There may be fewer.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        InvalidInput: More than one position is given, or a number is out of range.
        ServerLost: The server cannot be reached at the moment.
    """
    return await timelines_of(client).page(workflow_id, around=around, before=before, after=after, limit=limit)


async def handle(client: Client, workflow_id: str) -> AgentHandle | GoalHandle | SessionHandle:
    """Return an `AgentHandle`, `GoalHandle` or `SessionHandle`, according to the kind of the run.

    Args:
        client: From `connect`, `orga.worker` or your own.
        workflow_id: The run's id.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        ServerLost: The server cannot be reached at the moment.
    """
    kind = (await AgentHandle(client, workflow_id).describe()).workflow_type
    if kind not in RUN_WORKFLOWS:
        raise NotAnAgent(workflow_id, kind)
    handles = {GOAL_WORKFLOW: GoalHandle, SESSION_WORKFLOW: SessionHandle}
    return handles.get(kind, AgentHandle)(client, workflow_id)


async def in_flight(client: Client, workflow_id: str) -> Sequence[LiveActivity]:
    """Return the model and tool calls of a run that are running now, each with its text so far.

    `AgentHandle.events` yields them whenever they change, and also those of delegated runs.

    Args:
        client: From `connect`, `orga.worker` or your own.
        workflow_id: The run's id.

    Raises:
        RunNotFound: No run has this id.
        ServerLost: The server cannot be reached at the moment.
    """
    return await activities_in_flight(client, await AgentHandle(client, workflow_id).describe())
