"""Exit codes that scripts rely on."""

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its module brings pydantic, which takes longer than a short command
    from orga.workflows.types.control import StopReason


class ExitCode(IntEnum):
    """Of `verify`, 8 stands for a file in which nothing is wrong, and for which no trusted key vouches.

    128 + the signal's number stands for an end by Ctrl-C (130) or SIGTERM (143): the run itself goes on.
    """

    COMPLETED = 0
    USAGE = 2
    LIMIT = 3
    DENIED = 4
    ABORTED = 5
    FAILED = 6
    NO_SERVER = 7
    UNPROVEN = 8


class UsageError(Exception):
    """A command line that cannot be carried out as it stands."""


_REASONS: "dict[StopReason, ExitCode]" = {
    "completed": ExitCode.COMPLETED,
    "max_iterations": ExitCode.LIMIT,
    "max_tokens": ExitCode.LIMIT,
    "max_cost": ExitCode.LIMIT,
    "timeout": ExitCode.LIMIT,
    "policy_denial": ExitCode.DENIED,
    "aborted": ExitCode.ABORTED,
    "escalated": ExitCode.FAILED,
    "stuck": ExitCode.FAILED,
    "error": ExitCode.FAILED,
}


def of_ending(reason: "StopReason") -> ExitCode:
    """Return the code for how a run ended."""
    return _REASONS[reason]
