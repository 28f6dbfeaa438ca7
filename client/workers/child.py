"""A worker as a child process, which ends with its parent: when the other end of its standard input is closed.

However the parent died, that is so.
"""

import os
import signal
import threading
from importlib import import_module


def end_with_parent() -> None:
    """Wait for the end of standard input, then ask this process to end."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run `worker.py` as `orga-worker` does."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    import_module("orga.worker").main()
