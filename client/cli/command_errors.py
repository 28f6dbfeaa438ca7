"""How a command ends that failed: one line on stderr, and its exit code."""

import os
import re
import traceback
from collections.abc import Callable
from errno import EDQUOT, ENAMETOOLONG, ENOENT, ENOSPC

from temporalio.service import RPCError, RPCStatusCode

from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.shown.text import alarm, behind
from orga.client.cli.workbench.trust import is_trusted_now
from orga.client.config.file import ConfigError
from orga.client.config.trust.check import Untrusted
from orga.client.errors import (
    AmbiguousRun,
    NotAnAgent,
    OrgaError,
    Refused,
    RunFailed,
    RunNotFound,
    ScheduleNotFound,
    ScheduleTaken,
)
from orga.client.history.boundaries import NoSuchIteration
from orga.client.history.prompts import NoPrompt
from orga.client.journal.file import Unwritable
from orga.client.policies.explained import NoSuchVerdict
from orga.client.server.endpoint import ServerUnavailable
from orga.client.server.server_errors import reason_of
from orga.workflows.types.record import InvalidInput

_EXPECTED = (UsageError, InvalidInput, OrgaError, ServerUnavailable, RPCError, OSError)

_OF_USAGE = (
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


_REFUSED = re.compile(r"^(InvalidInput: )+")


def ended_by(error: Exception, again: Callable[[], int]) -> int:
    """Return the exit code of a command that ended so, and say why; `ORGA_DEBUG=1` shows all.

    What a person at the terminal trusts meanwhile is asked once, and then it runs `again`.
    """
    if isinstance(error, Untrusted) and is_trusted_now(error):
        return again()
    if os.environ.get("ORGA_DEBUG"):
        traceback.print_exc()
    alarm(*behind("orga: ", _text(error)))
    return of_error(error)


def _text(error: Exception) -> str:
    if not isinstance(error, _EXPECTED):  # never a traceback, unless it is asked for
        return f"defect: {type(error).__name__}: {error} (ORGA_DEBUG=1 shows where)"
    if isinstance(error, RPCError):
        return f"the Temporal server answered {error.status.name.lower()}: {reason_of(error)}; see: orga doctor"
    if isinstance(error, RunFailed):
        return _REFUSED.sub("", str(error))
    return _of_system(error) if isinstance(error, OSError) else str(error)


def _of_system(error: OSError) -> str:
    """Return what the operating system refused, in words, with the remedy where there is one."""
    if error.errno in {ENOSPC, EDQUOT}:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}the disk is full, so not all was written; make room and try again"
    if error.errno == ENOENT and error.filename is None:
        return "the working folder is gone, deleted or moved; change into another one (cd)"
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"
