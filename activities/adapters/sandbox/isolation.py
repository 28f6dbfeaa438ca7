"""Whether this machine can do to commands what is asked for."""

import logging

from orga.activities.adapters.sandbox.bubblewrap import check_bubblewrap
from orga.activities.adapters.sandbox.prctl import IS_LINUX
from orga.workflows.types.sandbox import Isolation

_log = logging.getLogger(__name__)

_ELSEWHERE = (
    "commands: on this system memory and the number of processes are not limited, and a process that moves to a "
    "session of its own outlives its call; on Linux all that holds"
)


def check_isolation(isolation: Isolation) -> None:
    """Find out before the first call; warn where less can be done than on Linux.

    Raises:
        ValueError: With the remedy.
    """
    if isolation == "bubblewrap":
        check_bubblewrap()
    elif not IS_LINUX:
        _log.warning(_ELSEWHERE)
