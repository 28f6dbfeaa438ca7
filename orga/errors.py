"""The errors that functions of `orga` raise, for `except`. Each text is one line: the cause, then the remedy."""

from orga.client.errors import (
    ConfigError,
    InvalidSettings,
    NoAnswer,
    NotAnAgent,
    NotSavedYet,
    NotTakenYet,
    OrgaError,
    PastRefused,
    QueueFull,
    Refused,
    RunEnded,
    RunFailed,
    RunNotFound,
    ScheduleTaken,
    ServerLost,
    ServerUnavailable,
    SessionBusy,
    SessionClosed,
    StaleSettings,
    TurnUnknown,
)
from orga.client.history.chain import NoSuchIteration
from orga.client.journal.file import NoJournal
from orga.workflows.types.record import InvalidInput

__all__ = [
    "ConfigError",
    "InvalidInput",
    "InvalidSettings",
    "NoAnswer",
    "NoJournal",
    "NoSuchIteration",
    "NotAnAgent",
    "NotSavedYet",
    "NotTakenYet",
    "OrgaError",
    "PastRefused",
    "QueueFull",
    "Refused",
    "RunEnded",
    "RunFailed",
    "RunNotFound",
    "ScheduleTaken",
    "ServerLost",
    "ServerUnavailable",
    "SessionBusy",
    "SessionClosed",
    "StaleSettings",
    "TurnUnknown",
]
