"""Exit codes that scripts rely on."""

from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the module imports pydantic, which takes longer than a short command
    from orga.workflows.types.sessions.session_result import TurnReason


class ExitCode(IntEnum):
    """The codes of commands that end by themselves.

    If a signal ends a command, the code is 128 + the signal's number: Ctrl-C 130, SIGTERM 143. Its run continues.
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
    ExitCode.COMPLETED: "success; the run has answered",
    ExitCode.FAULTY: "a manifest is wrong (`orga tools check`), or a model does not work (`orga models try`)",
    ExitCode.USAGE: "the command line, the configuration or an id is wrong, or the run refuses; nothing was started",
    ExitCode.LIMIT: "the run reached a limit: iterations, tokens, cost, time",
    ExitCode.DENIED: "policy denies the call, or the run ended after repeated denials of one call",
    ExitCode.ABORTED: "the run was aborted",
    ExitCode.FAILED: "the command, the run or a check failed",
    ExitCode.NO_SERVER: "no Temporal server answers",
    ExitCode.UNPROVEN: "nothing is wrong, but no trusted key vouches for the file (`orga verify` of a file only)",
}

COMMON_EXIT_CODES = (ExitCode.COMPLETED, ExitCode.USAGE, ExitCode.FAILED)
"""Codes that every command can return."""

COMMANDS_WITHOUT_SERVER = frozenset(
    {
        *("agents", "completion", "config show", "doctor", "init", "logs", "trust"),
        *("models list", "models try", "notify test"),
        *("knowledge add", "knowledge search", "knowledge show", "knowledge forget", "knowledge import"),
        *("knowledge import-conventions", "knowledge export", "knowledge stats", "knowledge reindex"),
        *("tools list", "tools new", "tools import-openapi", "tools check", "tools call", "tools pin", "tools login"),
        *("policy check", "policy test", "policy schema", "audit keygen"),
    }
)
"""Commands that work even if no Temporal server answers. All others then end with `NO_SERVER`."""

_FOLLOWED_RUN_CODES = {
    ExitCode.LIMIT: "the run reached a limit",
    ExitCode.DENIED: "the run ended because policy denied the same call repeatedly",
    ExitCode.ABORTED: "the run was aborted",
    ExitCode.FAILED: "the run failed, is stuck or was ended by a person's decision",
}

_INTERVENTION_CODES = {ExitCode.FAILED: "the run has ended"}

_DECISION_CODES = {
    ExitCode.USAGE: "the run refuses the decision; nothing has changed",
    ExitCode.FAILED: "the run has ended, or no worker received the decision",
}

COMMAND_EXIT_CODES: dict[str, dict[ExitCode, str]] = {
    **dict.fromkeys(("run", "goal", "attach", "demo"), _FOLLOWED_RUN_CODES),
    **dict.fromkeys(("steer", "add-context", "pause", "resume", "abort"), _INTERVENTION_CODES),
    **dict.fromkeys(("answer", "override", "approve", "deny", "resolve", "complete", "extend"), _DECISION_CODES),
    "requeue": _DECISION_CODES
    | {ExitCode.FAILED: "the run has ended, no worker received the decision, or a receiver refuses again"},
    "chat": {
        ExitCode.LIMIT: "a script's last uncompleted turn reached a limit",
        ExitCode.DENIED: "a script's last uncompleted turn ended because policy denied the same call repeatedly",
        ExitCode.ABORTED: "a script's last uncompleted turn was interrupted, or the session was aborted",
        ExitCode.FAILED: "a script's last uncompleted turn failed, or the session ended before all messages were sent",
    },
    "verify": {
        ExitCode.FAILED: "something is wrong; the output names it",
        ExitCode.UNPROVEN: "nothing is wrong with the file, but no trusted key vouches for it",
    },
    "journal": {ExitCode.FAILED: "with `--verify` or `--exported`: something was changed"},
    "models list": {
        ExitCode.FAILED: "a model of the configuration lacks something, or `--check` found that it cannot be used"
    },
    "models try": {ExitCode.FAULTY: "a model did not answer, or answered without calling the tool"},
    "dev": {ExitCode.FAILED: "workers keep dying"},
    "worker": {ExitCode.FAILED: "the worker ended by itself"},
    "setup": {ExitCode.FAILED: "the server does not register the search attributes"},
    "doctor": {ExitCode.FAILED: "something is missing"},
    "server": {
        ExitCode.NO_SERVER: "the server cannot be started, or another command stopped it; with `--status`: none runs"
    },
    "notify test": {ExitCode.FAILED: "the receiver did not accept the notification"},
    "policy test": {ExitCode.FAILED: "a case has another verdict than expected"},
    "policy check": {ExitCode.USAGE: "a policy is wrong, or names something that does not exist"},
    "audit runs": {ExitCode.FAILED: "a verdict would change, or a call could not be judged again"},
    "tools login": {ExitCode.FAILED: "nobody logged in in time, or a server refused"},
    "tools check": {ExitCode.FAULTY: "a manifest is wrong"},
    "tools call": {
        ExitCode.USAGE: "the arguments do not fit the tool",
        ExitCode.DENIED: "policy denies the call, or requires an approval",
        ExitCode.FAILED: "the tool failed",
    },
}
"""Codes that only some commands return, and codes with a special meaning for one command."""


class UsageError(Exception):
    """The command line cannot be carried out as given."""


@contextmanager
def usage_errors() -> Generator[None]:
    """Turn a ValueError of the block into a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from None


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
    return _ENDING_CODES[reason]
