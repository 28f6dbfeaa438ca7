"""The journal of a run, read from its history: through continue-as-new, live or closed, with no worker running."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

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
"""The first entry of a journal whose oldest runs are past the server's retention; it is numbered from there."""


Observe = Callable[[HistoryEvent, bool], None]
"""Gets an event once the entries that it brings were taken, and whether it was the latest one, or newer, when the
reading began."""


class SeenEntries:
    """The entries that were seen, so that a journal which is read again from its first entry brings what is new."""

    def __init__(self) -> None:
        self._hashes: list[str] = []

    def hash_at(self, sequence: int) -> str:
        """Return the hash of an entry that was seen."""
        return self._hashes[sequence]

    def is_new(self, entry: JournalEntry) -> bool:
        """Take the next entry and return whether it is new; from where a rewound run parts, all of it is."""
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
    """Yield the entries of a run, in order.

    A run that is rewound while it is followed goes on with the first entry that is another, whose sequence is lower
    than the last one's. Where the server has forgotten the oldest runs, the first entry says so. The journal of a
    delegated run stands before the `DelegationEnded` of its parent; `run` in an entry's data says whose it is.

    Args:
        client: From `connect`.
        workflow_id: The run; all runs of its continue-as-new chain are read.
        follow: Wait for new entries until the run ends. A lost connection ends it; `AgentHandle.events` goes on.
        seen: Entries that are not yielded again.
        observe: Gets each event of the run itself, none of its delegates.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        ServerLost: The server, or the way to it, is lost for the moment.
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
    """The run was reset while it was read: another goes on in its place."""


async def _entries(
    client: Client, chain: RunChain, follow: bool, observe: Observe | None = None, *, is_nested: bool = False
) -> AsyncGenerator[JournalEntry]:
    """Yield the entries; of a nested run, which its parent saw end, what became of it later does not count."""
    fold, run_ids = JournalFold(), list(chain.run_ids)
    is_cut = chain.is_cut
    for run_id in run_ids:
        of_run = observe and _run_observer(chain, run_id, observe)
        async for happening in _read_run(client, chain.workflow_id, run_id, follow, of_run):
            is_cut_off = happening.kind == "workflow_terminated" and not is_nested
            if is_cut_off and await was_reset(client, chain.workflow_id, run_ids):
                raise _RunRewound
            async for entry in _read_delegate(client, happening):
                yield fold.nested(entry, happening.key)
            found = fold.feed(happening)
            if is_cut:
                found, is_cut = [*found, *fold.feed(past_missing(happening))], False
            for entry in found:
                yield entry
            if happening.kind == "continued_as_new" and run_id == run_ids[-1]:
                run_ids.append(happening.key)  # the loop goes on with it


def _run_observer(chain: RunChain, run_id: str, observe: Observe) -> Callable[[HistoryEvent], None]:
    is_later, is_last = run_id not in chain.run_ids, run_id == chain.run_ids[-1]
    return lambda event: observe(event, is_later or (is_last and event.event_id >= chain.length))


async def _read_delegate(client: Client, happening: Happening) -> AsyncGenerator[JournalEntry]:
    """Yield the journal of the delegated run whose end this is, if it is one."""
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
    """Return what stands for the runs that the server has forgotten."""
    carried: dict[str, Any] = started.value[1] if len(started.value) > 1 else {}
    return _past_missing_event(
        started, f"the server has no longer what came before the end of iteration {carried.get('iteration', 0)}"
    )


def _past_missing_event(found: Happening, detail: str) -> Happening:
    note = Note(event=PAST_MISSING, data={"detail": detail})
    return Happening("noted", found.at, found.event_id, value=[note.model_dump()])


async def _read_run(
    client: Client, workflow_id: str, run_id: str, follow: bool, observe: Callable[[HistoryEvent], None] | None
) -> AsyncGenerator[Happening]:
    try:
        async for happening in happenings(client, workflow_id, run_id, follow=follow, observe=observe):
            yield happening
    except RPCError as error:
        raise history_error(workflow_id, error) from error
