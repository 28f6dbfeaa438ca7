"""Reads the journal of a live or ended run from the histories of its segments and delegates. No worker is needed."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, NamedTuple

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError

from orga.client.errors import RunNotFound
from orga.client.history.chain import RunChain, history_error, run_chain, was_reset
from orga.client.history.events import happenings
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.control import Note
from orga.workflows.types.status import Happening, JournalEntry

PAST_MISSING = "PastMissing"
"""The first entry of a journal if the server no longer has the oldest segments. It has number 0."""


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
        entries: list[JournalEntry] = []
        observe_run = _run_observer(chain, run_id, observe, entries) if observe else None
        async for happening in _read_run(client, chain.workflow_id, run_id, follow, observe_run):
            may_be_reset = happening.kind == "workflow_terminated" and not is_nested
            if may_be_reset and await was_reset(client, chain.workflow_id, run_ids):
                raise _RunRewound
            async for entry in _read_delegate(client, happening):
                yield fold.nested_entry(entry, happening.key)
            entries[:] = fold.feed(happening)
            if is_cut:
                entries += fold.feed(past_missing(happening))
                is_cut = False
            for entry in entries:
                yield entry
            if happening.kind == "continued_as_new" and run_id == run_ids[-1]:
                run_ids.append(happening.key)  # the loop continues with it


def _run_observer(
    chain: RunChain, run_id: str, observe: Observe, entries: list[JournalEntry]
) -> Callable[[HistoryEvent, Happening | None], None]:
    """Return the observer of one segment. `entries` holds the entries of its latest happening."""
    is_later, is_last = run_id not in chain.run_ids, run_id == chain.run_ids[-1]
    later_segments = 0 if is_later else len(chain.run_ids) - 1 - chain.run_ids.index(run_id)

    def observe_event(event: HistoryEvent, happening: Happening | None) -> None:
        is_latest = is_later or (is_last and event.event_id >= chain.length)
        own_entries = tuple(entries) if happening is not None else ()
        observe(ObservedEvent(run_id, event, happening, own_entries, later_segments, is_latest))

    return observe_event


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
    carried: dict[str, Any] = started.value[1] if len(started.value) > 1 else {}
    return _past_missing_event(
        started, f"the server has no longer what came before the end of iteration {carried.get('iteration', 0)}"
    )


def _past_missing_event(happening: Happening, detail: str) -> Happening:
    note = Note(event=PAST_MISSING, data={"detail": detail})
    return Happening("noted", happening.at, happening.event_id, value=[note.model_dump()])


async def _read_run(
    client: Client,
    workflow_id: str,
    run_id: str,
    follow: bool,
    observe: Callable[[HistoryEvent, Happening | None], None] | None,
) -> AsyncGenerator[Happening]:
    try:
        async for happening in happenings(client, workflow_id, run_id, follow=follow, observe=observe):
            yield happening
    except RPCError as error:
        raise history_error(workflow_id, error) from error
