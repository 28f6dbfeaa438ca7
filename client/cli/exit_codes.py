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


CODES: dict[ExitCode, str] = {
    ExitCode.COMPLETED: "it is done; of a run: it has answered",
    ExitCode.USAGE: "the command line, the configuration or an id is not right; nothing was begun",
    ExitCode.LIMIT: "the run has reached a limit: iterations, tokens, cost, time",
    ExitCode.DENIED: "policy denies it",
    ExitCode.ABORTED: "the run was aborted",
    ExitCode.FAILED: "it failed, or what was checked does not hold",
    ExitCode.NO_SERVER: "no Temporal server answers",
    ExitCode.UNPROVEN: "nothing is wrong, but no trusted key vouches for it",
}
"""What each means."""

COMMON = (ExitCode.COMPLETED, ExitCode.USAGE, ExitCode.FAILED, ExitCode.NO_SERVER)
"""Of every command."""

_FOLLOWED = {
    ExitCode.LIMIT: "the run has reached a limit",
    ExitCode.DENIED: "the run ended since policy denied the same thing again and again",
    ExitCode.ABORTED: "the run was aborted",
    ExitCode.FAILED: "the run failed, is stuck or was given up by a person",
}

OF_COMMANDS: dict[str, dict[ExitCode, str]] = {
    **dict.fromkeys(("run", "goal", "attach", "demo"), _FOLLOWED),
    "verify": {
        ExitCode.FAILED: "something is wrong; the line says what",
        ExitCode.UNPROVEN: "of a file: nothing is wrong, but no trusted key vouches for it",
    },
    "journal": {ExitCode.FAILED: "with `--verify` or `--exported`: something was changed"},
    "doctor": {ExitCode.FAILED: "something is missing"},
    "server": {ExitCode.NO_SERVER: "with `--status`: none is up"},
    "notify test": {ExitCode.FAILED: "the receiver did not take it"},
    "policy test": {ExitCode.FAILED: "a case comes out otherwise"},
    "policy check": {ExitCode.USAGE: "a policy is wrong, or names what is not there"},
    "audit runs": {ExitCode.FAILED: "something would have been decided otherwise"},
    "tools call": {ExitCode.DENIED: "policy denies the call", ExitCode.FAILED: "the tool failed"},
}
"""What of them means something of its own, or is one of a few commands alone."""


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
