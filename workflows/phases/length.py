"""How long the history is, asked where a replay gets the same answer."""

from dataclasses import dataclass

from temporalio import workflow


@dataclass(frozen=True)
class Length:
    """Of the history of this run, so far."""

    events: int = 0
    size: int = 0
    """In bytes."""
    is_long: bool = False
    """Whether the server suggests to continue as new."""


def length() -> Length:
    """Return it; to be asked where the run's clock is moved on, never behind a local activity (see `clock`)."""
    info = workflow.info()
    events, size = info.get_current_history_length(), info.get_current_history_size()
    return Length(events, size, info.is_continue_as_new_suggested())
