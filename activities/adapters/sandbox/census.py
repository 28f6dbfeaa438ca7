"""When the processes of a command are worth counting: how many the whole machine runs is cheap to know."""

import os
import time

from orga.activities.adapters.sandbox.tree import Tree

LOOK_INTERVAL_S = 0.02
_COUNT_INTERVAL_S = 0.5
_COUNT_SHARE = 20
"""Counting takes a twentieth of the time at most, however many processes the machine has."""


class Census:
    """Counts when the machine runs so many more that the command may be over its limit, and now and then anyway."""

    def __init__(self, tree: Tree, most: int) -> None:
        self._tree = tree
        self._most = most
        self._counted = 0
        self._machine_ran = threads_of_machine()
        self._due = time.monotonic() + _COUNT_INTERVAL_S

    def is_over(self) -> bool:
        """Return whether more than the limit are known to run."""
        grown = threads_of_machine() - self._machine_ran
        if self._counted + grown <= self._most and time.monotonic() < self._due:
            return False
        started = time.monotonic()
        self._machine_ran = threads_of_machine()
        self._counted = self._tree.running()
        ended = time.monotonic()
        self._due = ended + max(_COUNT_INTERVAL_S, _COUNT_SHARE * (ended - started))
        return self._counted > self._most


def threads_of_machine() -> int:
    """Return 0 where it is not to be had."""
    try:
        file = os.open("/proc/loadavg", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(file, 200).split()[3].partition(b"/")[2])
    finally:
        os.close(file)
