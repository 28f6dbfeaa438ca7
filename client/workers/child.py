"""A worker as a child process. When its parent closes the pipe to its standard input or dies, it finishes its calls.

The order comes over the same pipe, as one line of JSON. While the process waits for it, it loads the worker's code.
"""

import json
import os
import signal
import sys
import threading
from importlib import import_module
from queue import SimpleQueue

from orga.isolated import interrupt_silently


def listen(orders: SimpleQueue[bytes]) -> None:
    """Pass the order on, wait for the end of standard input, then let this process finish its calls and end."""
    received = b""
    while piece := os.read(0, 65_536):
        if b"\n" not in received:
            received += piece
            if b"\n" in received:
                orders.put(received)
    os.kill(os.getpid(), signal.SIGUSR1)


def main() -> None:
    """Run `worker.py` as `orga-worker` does, with this process's arguments. If it has none, wait for the order."""
    orders = SimpleQueue[bytes]()
    threading.Thread(target=listen, args=(orders,), daemon=True).start()
    with interrupt_silently():
        worker = import_module("orga.worker")
    arguments = sys.argv[1:]
    if not arguments:
        order = json.loads(orders.get())
        os.environ.update(order["environment"])
        arguments = order["arguments"]
    worker.main(arguments)
