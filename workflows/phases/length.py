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
    """Return it; to be asked when an activity has ended, never behind a local activity.

    A query that comes with a workflow task ends that task early when a local activity has ended in it. What follows the
    local activity runs in the next task then, but in this one when it is replayed: another length, another decision.
    """
    info = workflow.info()
    events, size = info.get_current_history_length(), info.get_current_history_size()
    return Length(events, size, info.is_continue_as_new_suggested())
