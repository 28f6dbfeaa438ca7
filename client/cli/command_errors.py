"""Reports the error that ended a command: its text on stderr, and the exit code."""

import os
import re
import traceback
from collections.abc import Callable
from errno import EDQUOT, ENAMETOOLONG, ENOENT, ENOSPC

from temporalio.service import RPCError, RPCStatusCode

from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.shown.text import hanging_lines, write_warning
from orga.client.cli.workbench.config import ask_for_trust
from orga.client.config.file import ConfigError
from orga.client.config.trust.check import Untrusted
from orga.client.errors import (
    AmbiguousRun,
    NoPrompt,
    NoSuchVerdict,
    NotAnAgent,
    OrgaError,
    Refused,
    RunFailed,
    RunNotFound,
    ScheduleNotFound,
    ScheduleTaken,
    ServerUnavailable,
)
from orga.client.history.chain import NoSuchIteration
from orga.client.journal.file import UnwritableJournal
from orga.client.server.server_errors import error_reason
from orga.workflows.types.record import InvalidInput

_EXPECTED_ERRORS = (UsageError, InvalidInput, OrgaError, ServerUnavailable, RPCError, OSError)

_USAGE_ERRORS = (
    UsageError,
    InvalidInput,
    ConfigError,
    RunNotFound,
    AmbiguousRun,
    ScheduleNotFound,
    ScheduleTaken,
    NotAnAgent,
    NoSuchIteration,
    NoPrompt,
    NoSuchVerdict,
    Refused,
    UnwritableJournal,
)


def error_exit_code(error: BaseException) -> ExitCode:
    if isinstance(error, _USAGE_ERRORS):
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


_REFUSAL_PREFIX = re.compile(r"^(InvalidInput: )+")


def report_error(error: Exception, again: Callable[[], int]) -> int:
    """Print why a command failed and return its exit code. `ORGA_DEBUG=1` shows the traceback.

    If the configuration is not trusted, a person at the terminal is asked once whether to trust it. After a yes,
    `again` runs the command once more, and its exit code is returned.
    """
    if isinstance(error, Untrusted) and ask_for_trust(error):
        return again()
    if os.environ.get("ORGA_DEBUG"):
        traceback.print_exc()
    write_warning(*hanging_lines("orga: ", _error_text(error)))
    return error_exit_code(error)


def _error_text(error: Exception) -> str:
    if not isinstance(error, _EXPECTED_ERRORS):
        return f"defect: {type(error).__name__}: {error} (ORGA_DEBUG=1 shows where)"
    if isinstance(error, RPCError):
        return f"the Temporal server answered {error.status.name.lower()}: {error_reason(error)}; see: orga doctor"
    if isinstance(error, RunFailed):
        return _REFUSAL_PREFIX.sub("", str(error))
    return _os_error_text(error) if isinstance(error, OSError) else str(error)


def _os_error_text(error: OSError) -> str:
    """Return the operating system's text. Some errors get a clearer text with a remedy."""
    if error.errno in {ENOSPC, EDQUOT}:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}the disk is full, so the output is incomplete. Free some space and try again"
    if error.errno == ENOENT and error.filename is None:
        return "the working folder was deleted or moved. Change into another folder (cd)"
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"
