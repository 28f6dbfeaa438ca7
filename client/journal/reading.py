"""Reads the journal of a live or ended run from the histories of its segments and delegates. No worker is needed."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import NamedTuple

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from orga.client.errors import RunNotFound
from orga.client.history.chain import RunChain, run_chain, was_reset
from orga.client.history.events import decoded_events, passed_on_state
from orga.client.journal.event_types import PAST_MISSING
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.control import Note
from orga.workflows.types.json_text import as_object
from orga.workflows.types.status import Happening, JournalEntry


class ObservedEvent(NamedTuple):
    run_id: str
    """Its segment."""
    event: HistoryEvent
    happening: Happening | None
    """None for an event that no fold uses."""
    entries: Sequence[JournalEntry]
    """Its entries, without those of delegated runs."""
    later_segments: int
    """The number of later segments that were known when the reading began."""
    is_latest: bool
    """True for the event that was the latest when the reading began, and for newer ones."""


Observe = Callable[[ObservedEvent], None]
"""Called with each event after its entries were yielded."""


class SeenEntries:
    """Remembers entries that were yielded, so that a journal that is read again yields only new ones."""

    def __init__(self) -> None:
        self._hashes: list[str] = []

    def hash_at(self, sequence: int) -> str:
        return self._hashes[sequence]

    def is_new(self, entry: JournalEntry) -> bool:
        """Add the next entry, and return whether it is new. After a rewind, new entries replace the old ones."""
        index = entry.sequence
        if index < len(self._hashes) and self._hashes[index] == entry.hash:
            return False
        self._hashes[index:] = [entry.hash]
        return True


async def read_journal(
    client: Client,
    workflow_id: str,
    *,
    follow: bool = False,
    seen: SeenEntries | None = None,
    observe: Observe | None = None,
) -> AsyncGenerator[JournalEntry]:
    """Yield the entries of a run in order.

    If the run is rewound while it is followed, the next entry is the first one that differs. Its sequence is lower than
    that of the entry before. If the server has deleted the oldest segments, the first entry is `PastMissing`. The
    journal of a delegated run comes before the `DelegationEnded` of its parent. Its entries have its id as `run`.

    Args:
        client: From `connect`.
        workflow_id: The id of the run. All its segments are read.
        follow: Wait for new entries until the run ends. Unlike `AgentHandle.events`, this does not reconnect.
        seen: Entries that are not yielded again.
        observe: Called with each event of the run itself, but not of its delegates.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        ServerLost: The server cannot be reached at the moment.
    """
    seen = SeenEntries() if seen is None else seen
    while True:
        chain = await run_chain(client, workflow_id)
        try:
            async for entry in _entries(client, chain, follow, observe):
                if seen.is_new(entry):
                    yield entry
        except _RunRewound:
            continue
        return


class _RunRewound(Exception):
    """The run was reset while it was read, and its chain must be read again."""


async def _entries(
    client: Client, chain: RunChain, follow: bool, observe: Observe | None = None, *, is_nested: bool = False
) -> AsyncGenerator[JournalEntry]:
    """Yield the entries of a chain. A reset of a nested run is ignored, because its parent saw an earlier end."""
    fold, run_ids = JournalFold(), list(chain.run_ids)
    is_cut = chain.is_cut
    for run_id in run_ids:
        async for event, happening in decoded_events(client, chain.workflow_id, run_id, follow=follow):
            entries: list[JournalEntry] = []
            if happening is not None:
                may_be_reset = happening.kind == "workflow_terminated" and not is_nested
                if may_be_reset and await was_reset(client, chain.workflow_id, run_ids):
                    raise _RunRewound
                async for entry in _read_delegate(client, happening):
                    yield fold.nested_entry(entry, happening.key)
                entries += fold.feed(happening)
                if is_cut:
                    entries += fold.feed(past_missing(happening))
                    is_cut = False
                for entry in entries:
                    yield entry
                if happening.kind == "continued_as_new" and run_id == run_ids[-1]:
                    run_ids.append(happening.key)  # the loop continues with it
            if observe is not None:
                later_segments = max(len(chain.run_ids) - 1 - run_ids.index(run_id), 0)
                is_new_segment = run_id not in chain.run_ids
                is_latest = is_new_segment or (later_segments == 0 and event.event_id >= chain.length)
                observe(ObservedEvent(run_id, event, happening, entries, later_segments, is_latest))


async def _read_delegate(client: Client, happening: Happening) -> AsyncGenerator[JournalEntry]:
    """Yield the journal of the delegated run that this event ends, if it ends one."""
    if not happening.run_id:
        return
    try:
        chain = await run_chain(client, happening.key, happening.run_id)
    except RunNotFound:
        for entry in JournalFold().feed(_past_missing_event(happening, "the server has this run no longer")):
            yield entry
        return
    async for entry in _entries(client, chain, follow=False, is_nested=True):
        yield entry


def past_missing(started: Happening) -> Happening:
    """Return the note that replaces the entries of deleted segments."""
    iteration = as_object(passed_on_state(started.value)).get("iteration", 0)
    return _past_missing_event(started, f"the server has no longer what came before the end of iteration {iteration}")


def _past_missing_event(happening: Happening, detail: str) -> Happening:
    note = Note(event=PAST_MISSING, data={"detail": detail})
    return Happening("noted", happening.at, happening.event_id, value=[note.model_dump()])
