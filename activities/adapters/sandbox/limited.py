"""A child process that limits itself, then becomes a program."""

import math
import os
import resource
import signal

from orga.activities.adapters.sandbox.prctl import DIES_WITH_PARENT, IS_LINUX, NO_NEW_PRIVILEGES, set_of_this_process

_NOT_STARTED = 127
"""The exit code that a shell gives, too."""


class Program:
    """What to become. No dataclass: importing that takes longer than all the rest of a start."""

    def __init__(
        self, command: list[str], environment: dict[str, str], limits: dict[str, float], *, no_new_privileges: bool
    ) -> None:
        """Take an absolute program with its arguments, and limits by their names in `resource`."""
        self.command = command
        self.environment = environment
        self.limits = limits
        self.no_new_privileges = no_new_privileges


def start(program: Program) -> int:
    """Return the process that becomes `program`; it dies with this one."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _become(program, parent)
        finally:
            os._exit(_NOT_STARTED)
    return child


def _become(program: Program, parent: int) -> None:
    name = program.command[0]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # else one that comes before the program does is lost
    try:
        os.setsid()
        set_of_this_process(DIES_WITH_PARENT, signal.SIGKILL)
        if os.getppid() == parent:
            _limit_this_process(program)
            os.execve(name, program.command, program.environment)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        os.write(2, f"{name}: {why}\n".encode(errors="replace"))


def _limit_this_process(program: Program) -> None:
    # Python ignores these two, and what is ignored stays so in the program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if program.no_new_privileges:
        set_of_this_process(NO_NEW_PRIVILEGES, 1)
    for name, wanted in program.limits.items():
        _limit(getattr(resource, name), math.ceil(wanted))


def _limit(limit: int, value: int) -> None:
    # At the soft limit of processor time comes a signal that says so, at the hard one SIGKILL.
    above = value + 1 if limit == resource.RLIMIT_CPU else value
    hard = resource.getrlimit(limit)[1]
    if hard != resource.RLIM_INFINITY:
        value, above = min(value, hard), min(above, hard)
    try:
        resource.setrlimit(limit, (value, above))
    except (ValueError, OSError):
        if IS_LINUX:  # macOS refuses some
            raise
