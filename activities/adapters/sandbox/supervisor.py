"""The program that runs one command within limits (the supervisor). After the command it ends all its processes.

The order arrives over a socket, and the report goes back over it. If the worker closes its end or dies, the supervisor
ends the command. The worker itself cannot set limits between fork and exec, because Python in a forked process of many
threads can deadlock. The supervisor has one thread. It imports little, because it starts for each command.
"""

import ctypes
import marshal
import math
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_IS_LINUX = sys.platform == "linux"
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVILEGES = 1, 36, 38


def _set_process_option(option: int, value: int) -> None:
    """Call prctl(2)."""
    if _IS_LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


_PAUSE_S = 0.005
_KILL_TIMEOUT_S = 1.5
"""Seconds to wait for killed processes. A process that hangs in the kernel for longer is given up."""


class _ProcessTree:
    """The command and all its descendants. Orphans belong to it too, because this process adopts them.

    Without Linux, only the command and its process group are known.
    """

    def __init__(self, child: int) -> None:
        self.child = child
        self.status: int | None = None
        """The command's wait status, after it has ended."""
        self.cpu_s = 0.0

    def reap(self) -> bool:
        """Collect ended children, and return whether any is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.child:
                self.status, self.cpu_s = status, usage.ru_utime + usage.ru_stime

    def end(self, grace_s: float, spared: int | None) -> None:
        """Send SIGTERM to all but `spared`, and wait `grace_s`. Then kill all, also new ones, until none is left."""
        if grace_s:
            self._ask_to_end(spared)
            self._wait_until_gone(grace_s)
        killed_by = time.monotonic() + _KILL_TIMEOUT_S
        # First the group of the command: if bubblewrap is in it, its end kills all others. Most fork bombs stay in it.
        self._kill_group(self.child)
        while self.reap() and time.monotonic() < killed_by:
            for group in {group for _, group in _descendants()}:
                self._kill_group(group)
            time.sleep(_PAUSE_S)

    def _ask_to_end(self, spared: int | None) -> None:
        asked = [pid for pid, _ in _descendants() if pid != spared]
        for pid in asked or [self.child]:  # if no other process is left, the command itself is asked
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    def _kill_group(self, group: int) -> None:
        """Kill a whole group in one step, so that none of its processes can fork in between."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)

    def _wait_until_gone(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self.reap() and time.monotonic() < until:
            time.sleep(_PAUSE_S)


def _descendants() -> list[tuple[int, int]]:
    """Return the process id and the group of each descendant. It may have left the command's group and session."""
    children = _children_by_parent() if _IS_LINUX else {}
    found = [(os.getpid(), 0)]
    for parent, _ in found:
        found += children.get(parent, ())
    return found[1:]


def _children_by_parent() -> dict[int, list[tuple[int, int]]]:
    """Return process ids and groups by parent. Zombies are included, because their other threads may still run."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                parent, group = _parent_and_group(entry.name)
                children.setdefault(int(parent), []).append((int(entry.name), int(group)))
    return children


def _parent_and_group(pid: str) -> list[bytes]:
    """Return parent and group. They follow the name of the process, which may contain any character."""
    file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        return os.read(file, 1_024).rpartition(b")")[2].split()[1:3]
    finally:
        os.close(file)


_NOT_STARTED = 127
"""The exit code if the program cannot be started, as in a shell."""


class Program:
    """The command to run. It is no dataclass, because that import takes longer than the rest of a start."""

    def __init__(
        self, command: list[str], environment: dict[str, str], limits: dict[str, float], *, no_new_privileges: bool
    ) -> None:
        """Take a command with an absolute path, and the limits by their names in the module `resource`."""
        self.command = command
        self.environment = environment
        self.limits = limits
        self.no_new_privileges = no_new_privileges


def start(program: Program) -> int:
    """Start a process that becomes `program`, and return its id. The kernel kills it if this process dies."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _exec_program(program, parent)
        finally:
            os._exit(_NOT_STARTED)
    return child


def _exec_program(program: Program, parent: int) -> None:
    name = program.command[0]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # otherwise a signal before the program's start would be lost
    try:
        os.setsid()
        _set_process_option(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() == parent:
            _limit_this_process(program)
            os.execve(name, program.command, program.environment)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        os.write(2, f"{name}: {why}\n".encode(errors="replace"))


def _limit_this_process(program: Program) -> None:
    # Python ignores these two signals, and the program would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if program.no_new_privileges:
        _set_process_option(_SET_NO_NEW_PRIVILEGES, 1)
    for name, wanted in program.limits.items():
        _set_limit(getattr(resource, name), math.ceil(wanted))


def _set_limit(limit: int, value: int) -> None:
    # The soft limit of processor time sends SIGXCPU, the hard one SIGKILL.
    above = value + 1 if limit == resource.RLIMIT_CPU else value
    hard = resource.getrlimit(limit)[1]
    if hard != resource.RLIM_INFINITY:
        value, above = min(value, hard), min(above, hard)
    try:
        resource.setrlimit(limit, (value, above))
    except (ValueError, OSError):
        if _IS_LINUX:  # macOS refuses some limits
            raise


CHECK_INTERVAL_S = 0.02
_COUNT_INTERVAL_S = 0.5
"""Least seconds between two counts."""
_COUNT_SHARE = 20
"""After a count, the next one waits at least this many times as long as the count took."""


class ProcessCensus:
    """Counts the command's processes at intervals, and at once if new threads of the machine may exceed the limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counted = 0
        self._threads_at_count = machine_threads()
        self._due = time.monotonic() + _COUNT_INTERVAL_S

    def is_over(self) -> bool:
        """Count if it is time, and return whether this count exceeds the limit. Without a count, return False."""
        grown = machine_threads() - self._threads_at_count
        if self._counted + grown <= self._most and time.monotonic() < self._due:
            return False
        started = time.monotonic()
        self._threads_at_count = machine_threads()
        self._counted = len(_descendants())
        ended = time.monotonic()
        self._due = ended + max(_COUNT_INTERVAL_S, _COUNT_SHARE * (ended - started))
        return self._counted > self._most


def machine_threads() -> int:
    """Return the number of threads of the machine, or 0 if it is unknown."""
    try:
        file = os.open("/proc/loadavg", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(file, 200).split()[3].partition(b"/")[2])
    finally:
        os.close(file)


LENGTH_BYTES = 8
"""Bytes before an order with its length."""
_SPARE_THREADS = 1_000
_THREADS_PER_PROCESS = 4


def main() -> None:
    """Carry out the order from the socket whose descriptor is the first argument."""
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    order = marshal.loads(_receive_order(control))
    # If the command is cancelled by now, do not start it, because it could do harm until it is ended.
    is_cancelled = select.select([control], [], [], 0)[0]
    report = _report_text("order", None, 0) if is_cancelled else _carry_out_order(order, control)
    with suppress(OSError):
        os.write(control, report.encode())


def _carry_out_order(order: "dict[str, Any]", control: int) -> str:
    _set_process_option(_SET_CHILD_SUBREAPER, 1)
    child_exits = _child_exit_descriptor()
    _raise_priority()
    tree = _ProcessTree(start(_program_from_order(order)))
    cause = _watch_command(tree, control, child_exits, order["processes"])
    # SIGTERM would end bubblewrap at once. All processes in it would die without their grace time.
    spared = tree.child if order["is_wrapped"] else None
    tree.end(order["grace_s"] if cause == "order" else 0, spared)
    return _report_text(cause, tree.status, tree.cpu_s)


def _report_text(cause: str, status: int | None, cpu_s: float) -> str:
    """Return a report in the form that `limited_command` reads."""
    return f"{cause} {status} {cpu_s}"


def _receive_order(control: int) -> bytes:
    data = b""
    while len(data) < LENGTH_BYTES or len(data) < LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big"):
        piece = os.read(control, 65_536)
        if not piece:
            sys.exit(1)
        data += piece
    return data[LENGTH_BYTES:]


def _program_from_order(order: "dict[str, Any]") -> Program:
    program = Program(**order["program"])
    if order["processes"] and (present := machine_threads()):
        # The kernel counts all threads of the user on the machine. So this limit is high: it only stops a command that
        # starts processes faster than the census counts.
        program.limits["RLIMIT_NPROC"] = present + _SPARE_THREADS + _THREADS_PER_PROCESS * order["processes"]
    return program


def _child_exit_descriptor() -> int:
    """Return a descriptor that becomes readable when a child ends. Signals to end are ignored: the worker decides."""
    readable, writable = os.pipe()
    for descriptor in (readable, writable):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ignore_signal)
    return readable


def _ignore_signal(number: int, frame: object) -> None:
    """Do nothing, because the descriptor shows the signal."""


def _raise_priority() -> None:
    """Raise the priority, so that this process can act among thousands of others.

    Only root may do it. Only root needs it, because the limit of processes does not hold for root.
    """
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def _watch_command(tree: _ProcessTree, control: int, child_exits: int, most: int | None) -> str:
    """Wait, and return the cause of the end: the command's own `end`, an `order` to end, or too many `processes`."""
    census = ProcessCensus(most) if most else None
    watch = select.poll()
    watch.register(control, select.POLLIN)
    watch.register(child_exits, select.POLLIN)
    while True:
        ready = [number for number, _ in watch.poll(CHECK_INTERVAL_S * 1_000 if census else None)]
        if child_exits in ready:
            os.read(child_exits, 4_096)
        tree.reap()
        if tree.status is not None:
            return "end"
        if control in ready:
            return "order"
        if census and census.is_over():
            return "processes"
