"""Exit codes that scripts rely on."""

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its module brings pydantic, which takes longer than a short command
    from orga.workflows.types.sessions.result import TurnReason


class ExitCode(IntEnum):
    """Of `verify`, 8 stands for a file in which nothing is wrong, and for which no trusted key vouches.

    128 + the signal's number stands for an end by Ctrl-C (130) or SIGTERM (143): the run itself goes on.
    """

    COMPLETED = 0
    FAULTY = 1
    USAGE = 2
    LIMIT = 3
    DENIED = 4
    ABORTED = 5
    FAILED = 6
    NO_SERVER = 7
    UNPROVEN = 8


EXIT_CODE_MEANINGS: dict[ExitCode, str] = {
    ExitCode.COMPLETED: "it is done; of a run: it has answered",
    ExitCode.FAULTY: "of `orga tools check` alone: a manifest is wrong",
    ExitCode.USAGE: "the command line, the configuration or an id is not right, or the run refuses; nothing was begun",
    ExitCode.LIMIT: "the run has reached a limit: iterations, tokens, cost, time",
    ExitCode.DENIED: "policy denies it",
    ExitCode.ABORTED: "the run was aborted",
    ExitCode.FAILED: "it failed, or what was checked does not hold",
    ExitCode.NO_SERVER: "no Temporal server answers",
    ExitCode.UNPROVEN: "nothing is wrong, but no trusted key vouches for it",
}
"""What each means."""

COMMON_EXIT_CODES = (ExitCode.COMPLETED, ExitCode.USAGE, ExitCode.FAILED)
"""Of every command."""

COMMANDS_WITHOUT_SERVER = frozenset(
    {
        *("notify test", "init", "config show", "agents", "models", "completion", "logs", "doctor", "trust"),
        *("knowledge add", "knowledge search", "knowledge show", "knowledge forget", "knowledge import"),
        *("knowledge import-conventions", "knowledge export", "knowledge stats", "knowledge reindex"),
        *("tools list", "tools new", "tools check", "tools call", "tools pin"),
        *("policy check", "policy test", "policy schema", "audit keygen"),
    }
)
"""Commands that do their work where no Temporal server answers; all others end as `NO_SERVER` there."""

_FOLLOWED_RUN_CODES = {
    ExitCode.LIMIT: "the run has reached a limit",
    ExitCode.DENIED: "the run ended since policy denied the same thing again and again",
    ExitCode.ABORTED: "the run was aborted",
    ExitCode.FAILED: "the run failed, is stuck or was given up by a person",
}

_SIGNAL_CODES = {ExitCode.FAILED: "the run has ended"}

_DECISION_CODES = {
    ExitCode.USAGE: "the run refuses it; nothing has changed",
    ExitCode.FAILED: "the run has ended, or no worker has taken it",
}

COMMAND_EXIT_CODES: dict[str, dict[ExitCode, str]] = {
    **dict.fromkeys(("run", "goal", "attach", "demo"), _FOLLOWED_RUN_CODES),
    **dict.fromkeys(("steer", "add-context", "pause", "resume", "abort"), _SIGNAL_CODES),
    **dict.fromkeys(("answer", "override", "approve", "deny", "resolve", "extend"), _DECISION_CODES),
    "requeue": _DECISION_CODES
    | {ExitCode.FAILED: "the run has ended, no worker has taken it, or a receiver refuses again"},
    "chat": {
        ExitCode.LIMIT: "what was said in a script: the last turn that was not completed has reached a limit",
        ExitCode.DENIED: "the same, since policy denied the same thing again and again",
        ExitCode.ABORTED: "the same, since it was interrupted or the session aborted",
        ExitCode.FAILED: "the same, since it failed; or the session ended before all lines were said",
    },
    "verify": {
        ExitCode.FAILED: "something is wrong; the line says what",
        ExitCode.UNPROVEN: "of a file: nothing is wrong, but no trusted key vouches for it",
    },
    "journal": {ExitCode.FAILED: "with `--verify` or `--exported`: something was changed"},
    "models": {
        ExitCode.FAILED: "a model that the configuration names lacks something, or with `--check` cannot be asked"
    },
    "dev": {ExitCode.FAILED: "one worker after the other died"},
    "worker": {ExitCode.FAILED: "the worker ended by itself"},
    "setup": {ExitCode.FAILED: "the server does not register them"},
    "doctor": {ExitCode.FAILED: "something is missing"},
    "server": {ExitCode.NO_SERVER: "none can be started, it was stopped by somebody, or with `--status`: none is up"},
    "notify test": {ExitCode.FAILED: "the receiver did not take it"},
    "policy test": {ExitCode.FAILED: "a case comes out otherwise"},
    "policy check": {ExitCode.USAGE: "a policy is wrong, or names what is not there"},
    "audit runs": {ExitCode.FAILED: "something would have been decided otherwise, or could not be judged anew"},
    "tools check": {ExitCode.FAULTY: "a manifest is wrong"},
    "tools call": {
        ExitCode.USAGE: "the arguments do not fit the tool",
        ExitCode.DENIED: "policy denies the call, or it waits for a yes",
        ExitCode.FAILED: "the tool failed",
    },
}
"""What of them means something of its own, or is one of a few commands alone."""


class UsageError(Exception):
    """A command line that cannot be carried out as it stands."""


_ENDING_CODES: "dict[TurnReason, ExitCode]" = {
    "completed": ExitCode.COMPLETED,
    "max_iterations": ExitCode.LIMIT,
    "max_tokens": ExitCode.LIMIT,
    "max_cost": ExitCode.LIMIT,
    "timeout": ExitCode.LIMIT,
    "policy_denial": ExitCode.DENIED,
    "aborted": ExitCode.ABORTED,
    "interrupted": ExitCode.ABORTED,
    "escalated": ExitCode.FAILED,
    "stuck": ExitCode.FAILED,
    "error": ExitCode.FAILED,
}


def ending_exit_code(reason: "TurnReason") -> ExitCode:
    """Return the code for how a run ended, or a turn of a session."""
    return _ENDING_CODES[reason]
