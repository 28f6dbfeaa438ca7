"""The journal of a run, from a server, a history file, or an exported journal."""

from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.converter import DataConverter

from orga.client.history.events import read_events
from orga.client.history.values import RunValues, values_in
from orga.client.journal.file import read_journal_file
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from orga.client.testing.recorded import recorded_history
from orga.client.workers.application import with_our_converter
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.status import JournalEntry


async def journal_of(
    run: AgentHandle | WorkflowHandle[Any, Any] | WorkflowHistory | Path | str,
    *,
    data_converter: DataConverter = DataConverter.default,
    namespace: str = "default",
) -> list[JournalEntry]:
    """Return the entries so far, oldest first.

    Args:
        run: A handle, a history, a history file (JSON of the Temporal UI or CLI), or an exported journal (`.jsonl`).
        data_converter: Your client's converter, if the history's values went through your codec or external storage. A
            handle's client has its own.
        namespace: The history's namespace, for a codec that depends on it.

    Raises:
        RunNotFound: No run has the handle's id.
        NoJournal: The file is no journal.
        OrgaError: The file is no history.
    """
    if isinstance(run, AgentHandle):
        return [entry async for entry in read_journal(run.client, run.id)]
    if isinstance(run, WorkflowHandle):
        return [entry async for entry in read_journal(run._client, run.id)]
    if not isinstance(run, WorkflowHistory) and Path(run).suffix == ".jsonl":
        return list(read_journal_file(Path(run)).entries)
    history = run if isinstance(run, WorkflowHistory) else recorded_history(Path(run))
    return await _fold(values_in(history, with_our_converter(data_converter), namespace), history.events)


async def _fold(values: RunValues, events: Iterable[HistoryEvent]) -> list[JournalEntry]:
    fold, found = JournalFold(), list[JournalEntry]()
    async for happening in read_events(values, _as_async(events)):
        found += fold.feed(happening)
    return found


async def _as_async(events: Iterable[HistoryEvent]) -> AsyncGenerator[HistoryEvent]:
    for event in events:
        yield event
