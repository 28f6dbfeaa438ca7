"""A worker as a child process: `python -m client.worker_child FOLDER [worker's options]`.

It works in FOLDER, whatever folder made the modules of orga importable, and ends with its parent: when the other end of
its standard input is closed, however the parent died.
"""

import os
import runpy
import signal
import sys
import threading


def end_with_parent() -> None:
    """Wait for the end of standard input, then ask this process to end."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run `worker.py` as if it had been called by itself."""
    folder, *arguments = sys.argv[1:]
    os.chdir(folder)
    sys.argv = ["worker", *arguments]
    threading.Thread(target=end_with_parent, daemon=True).start()
    runpy.run_module("worker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
