"""Where a run was started for, as its memo says; those that it starts are told, too."""

from typing import Any

from temporalio import workflow

from orga.workflows.types.input import WORKPLACE_MEMO, Workplace, workplace_of


def started_for() -> Workplace | None:
    """Return the place; None where none was named, or where what a starter wrote cannot be read."""
    return workplace_of(_memo())


def handed_on() -> dict[str, Any] | None:
    """Return the memo of a run that this one starts, so that people find it under the same folder."""
    place = started_for()
    return None if place is None else {WORKPLACE_MEMO: place.model_dump(mode="json")}


def _memo() -> Any:
    try:
        return workflow.memo_value(WORKPLACE_MEMO, None)
    except Exception:  # a payload of any kind may stand there; an error here would hold up the run for ever
        return None
