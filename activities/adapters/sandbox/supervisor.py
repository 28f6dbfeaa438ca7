"""Program that runs a command within limits and ends with it all that it started.

The order comes over a socket and the report goes back over it; when its other end is closed, by choice or because the
worker died, the command is ended. Limits set between fork and exec of the worker would run Python in a forked,
threaded process, which can deadlock; this one has a single thread, and imports little, for it starts every time.
"""

import marshal
import os
import select
import signal
import sys
from contextlib import suppress

from orga.activities.adapters.sandbox.census import LOOK_INTERVAL_S, Census, threads_of_machine
from orga.activities.adapters.sandbox.limited import Program, start
from orga.activities.adapters.sandbox.prctl import ADOPTS_DESCENDANTS, set_of_this_process
from orga.activities.adapters.sandbox.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as all else
    from typing import Any

LENGTH_BYTES = 8
_MORE_THREADS = 1_000
_THREADS_EACH = 4


def main() -> None:
    """Do what comes over the socket whose number is the first argument."""
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    order = marshal.loads(_received(control))
    # What is called off while this starts is not begun: it would do harm in its time of grace.
    is_off = select.select([control], [], [], 0)[0]
    report = "order None 0" if is_off else _carried_out(order, control)
    with suppress(OSError):
        os.write(control, report.encode())


def _carried_out(order: "dict[str, Any]", control: int) -> str:
    set_of_this_process(ADOPTS_DESCENDANTS, 1)
    woken = _woken()
    _come_first()
    tree = Tree(start(_program(order)))
    came = _watched(tree, control, woken, order["processes"])
    # SIGTERM would end bubblewrap itself at once, and with it all that still has its grace.
    spared = tree.child if order["is_wrapped"] else None
    tree.end(order["grace_s"] if came == "order" else 0, spared)
    return f"{came} {tree.status} {tree.cpu_s}"


def _received(control: int) -> bytes:
    data = b""
    while len(data) < LENGTH_BYTES or len(data) < LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big"):
        piece = os.read(control, 65_536)
        if not piece:
            sys.exit(1)
        data += piece
    return data[LENGTH_BYTES:]


def _program(order: "dict[str, Any]") -> Program:
    program = Program(**order["program"])
    if order["processes"] and (present := threads_of_machine()):
        # The kernel counts all threads of a user, on all of the machine; so this only bounds what counting is late for.
        program.limits["RLIMIT_NPROC"] = present + _MORE_THREADS + _THREADS_EACH * order["processes"]
    return program


def _woken() -> int:
    """Return what becomes readable when a child ends. To answer signals that ask to end is the worker's part."""
    woken, wakes = os.pipe()
    for number in (woken, wakes):
        os.set_blocking(number, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _noticed)
    return woken


def _noticed(number: int, frame: object) -> None:
    """Do nothing: that it came can be read."""


def _come_first() -> None:
    """Be heard among thousands that want to run. Only root may, and only root has no limit by the kernel."""
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def _watched(tree: Tree, control: int, woken: int, most: int | None) -> str:
    """Wait for the `end` of the command, an `order` to end it, or too many `processes`; return which came."""
    census = Census(tree, most) if most else None
    watch = select.poll()
    watch.register(control, select.POLLIN)
    watch.register(woken, select.POLLIN)
    while True:
        ready = [number for number, _ in watch.poll(LOOK_INTERVAL_S * 1_000 if census else None)]
        if woken in ready:
            os.read(woken, 4_096)
        tree.reap()
        if tree.status is not None:
            return "end"
        if control in ready:
            return "order"
        if census and census.is_over():
            return "processes"
