"""The journal of a run, from a server, a history file, or an exported journal."""

from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.converter import DataConverter

from orga.client.errors import OrgaError
from orga.client.history.events import read_events
from orga.client.history.values import RunValues, values_in
from orga.client.journal.file import read_journal_file
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from orga.client.workers.application import with_our_converter
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.status import JournalEntry

NO_HISTORY_HINT = (
    "save one in the Temporal UI (Download), or with: temporal workflow show --workflow-id ID --output json > FILE"
)


class NoHistory(OrgaError):
    """The file holds no history, or the folder has none."""


def recorded_history(path: Path) -> WorkflowHistory:
    """Read the file.

    Raises:
        NoHistory: It is no history. The text says how to get one.
    """
    try:
        history = WorkflowHistory.from_json(path.stem, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoHistory(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # the parser of protocol buffers may raise anything
        raise NoHistory(f"{path} holds no history ({type(error).__name__}); {NO_HISTORY_HINT}") from None
    if not history.events:
        raise NoHistory(f"{path} holds no events; {NO_HISTORY_HINT}")
    started = history.events[0].workflow_execution_started_event_attributes
    return WorkflowHistory(started.workflow_id or path.stem, history.events)  # ids of children contain it


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
