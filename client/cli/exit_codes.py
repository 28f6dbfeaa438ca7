"""Exit codes that scripts rely on."""

from enum import IntEnum
from errno import ENAMETOOLONG

from temporalio.service import RPCError, RPCStatusCode

from orga.client.config.file import ConfigError
from orga.client.errors import NotAnAgent, Refused, RunFailed, RunNotFound, ScheduleNotFound, ScheduleTaken
from orga.client.history.boundaries import NoSuchIteration
from orga.client.history.prompts import NoPrompt
from orga.client.journal.file import Unwritable
from orga.client.policies.explained import NoSuchVerdict
from orga.client.server.endpoint import ServerUnavailable
from orga.workflows.types.control import StopReason
from orga.workflows.types.record import InvalidInput


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


_REASONS: dict[StopReason, ExitCode] = {
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


def of_ending(reason: StopReason) -> ExitCode:
    """Return the code for how a run ended."""
    return _REASONS[reason]


_OF_USAGE = (
    UsageError,
    InvalidInput,
    ConfigError,
    RunNotFound,
    ScheduleNotFound,
    ScheduleTaken,
    NotAnAgent,
    NoSuchIteration,
    NoPrompt,
    NoSuchVerdict,
    Refused,
    Unwritable,
)


def of_error(error: BaseException) -> ExitCode:
    """Return the code for an error that ends a command."""
    if isinstance(error, _OF_USAGE):
        return ExitCode.USAGE
    if isinstance(error, RunFailed):  # a worker refuses what only it can check: agent, tools, model
        return ExitCode.USAGE if str(error).startswith("InvalidInput") else ExitCode.FAILED
    if isinstance(error, OSError) and error.errno == ENAMETOOLONG:
        return ExitCode.USAGE
    if isinstance(error, ServerUnavailable):
        return ExitCode.NO_SERVER
    if isinstance(error, RPCError) and error.status in {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED}:
        return ExitCode.NO_SERVER
    return ExitCode.FAILED
