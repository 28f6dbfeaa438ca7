"""Starts every process of orga isolated, so that no folder and no variable can replace our modules.

The commands `orga` and `orga-worker` begin here. They become another Python at once, `python -I`, which ignores the
working folder and `PYTHONPATH`. Until then, they import only what Python itself has already imported.
"""

import os
import sys


def command() -> None:
    """Run `orga`."""
    _exec_module("orga.client.cli.main", sys.argv[1:])


def worker() -> None:
    """Run `orga-worker`."""
    _exec_module("orga.worker", sys.argv[1:])


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a process that runs `main` of one of our modules."""
    without_bytecode = ["-B"] if sys.dont_write_bytecode else []
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "isolated.py")  # noqa: PTH100, PTH118, PTH120
    return [sys.executable, *without_bytecode, "-I", program, module, *arguments]


def _open_streams() -> None:
    """Open each standard stream that is closed. Otherwise the next opened file would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _exec_module(module: str, arguments: list[str]) -> None:
    _open_streams()
    signals = sys.modules["_signal"]
    # Without this, Ctrl-C would make Python itself print a traceback. `isolated.py` unblocks the signal.
    signals.pthread_sigmask(signals.SIG_BLOCK, [signals.SIGINT])
    os.execv(sys.executable, module_command(module, *arguments))
