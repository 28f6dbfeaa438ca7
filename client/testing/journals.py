"""The journal of a run, wherever the run is: on a server, in a file of its history, in an exported journal."""

from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle, WorkflowHistory

from orga.client.history.converter import data_converter
from orga.client.history.events import read_events
from orga.client.journal.file import read_journal_file
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from orga.client.testing.recorded import recorded_history
from orga.workflows.decisions.journal import JournalFold
from orga.workflows.types.status import JournalEntry


async def journal_of(
    run: AgentHandle | WorkflowHandle[Any, Any] | WorkflowHistory | Path | str,
) -> list[JournalEntry]:
    """Return the entries so far, oldest first.

    Args:
        run: A handle; or a history, its file (JSON of the Temporal UI or CLI), or an exported journal (`.jsonl`).

    Raises:
        RunNotFound: No run has the handle's id.
        NoJournal: The file is none.
        OrgaError: The file is no history.
    """
    if isinstance(run, AgentHandle):
        return [entry async for entry in read_journal(run.client, run.id)]
    if isinstance(run, WorkflowHandle):
        return [entry async for entry in read_journal(run._client, run.id)]
    if isinstance(run, WorkflowHistory):
        return await _fold(run.events)
    if Path(run).suffix == ".jsonl":
        return list(read_journal_file(Path(run)).entries)
    return await _fold(recorded_history(Path(run)).events)


async def _fold(events: Iterable[HistoryEvent]) -> list[JournalEntry]:
    fold, found = JournalFold(), list[JournalEntry]()
    async for happening in read_events(data_converter, _each(events)):
        found += fold.feed(happening)
    return found


async def _each(events: Iterable[HistoryEvent]) -> AsyncGenerator[HistoryEvent]:
    for event in events:
        yield event
