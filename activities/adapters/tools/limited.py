"""Program that limits itself, then becomes another: `limited.py CPU_S MEMORY FILE_SIZE OPEN_FILES PROGRAM ARGUMENT...`.

Limits set between fork and exec of the worker would run Python in a forked, threaded process, which can deadlock.
"""

import os
import resource
import signal
import sys

_LIMITS = (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)


def _become(limits: list[str], command: list[str]) -> None:
    for limit, wanted in zip(_LIMITS, map(int, limits), strict=True):
        hard = resource.getrlimit(limit)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Python ignores these two, and what is ignored stays so in the program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    _become(sys.argv[1:5], sys.argv[5:])
