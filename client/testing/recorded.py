"""A history in a file, as written by the Temporal UI, `temporal workflow show --output json` or a test."""

from pathlib import Path

from temporalio.client import WorkflowHistory

from orga.client.errors import OrgaError

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
