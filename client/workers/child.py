"""A worker as a child process, which ends with its parent: when the other end of its standard input is closed.

However the parent died, that is so. Its order comes by that way, too, as one line of JSON, once it is known: what a
worker is made of is loaded meanwhile.
"""

import json
import os
import signal
import sys
import threading
from importlib import import_module
from queue import SimpleQueue

from orga.isolated import loading


def listen(orders: SimpleQueue[bytes]) -> None:
    """Pass the order on, wait for the end of standard input, then ask this process to end."""
    heard = b""
    while more := os.read(0, 65_536):
        if b"\n" not in heard:
            heard += more
            if b"\n" in heard:
                orders.put(heard)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run `worker.py` as `orga-worker` does: by the arguments of this process, else by the order that comes."""
    orders = SimpleQueue[bytes]()
    threading.Thread(target=listen, args=(orders,), daemon=True).start()
    with loading():
        worker = import_module("orga.worker")
    arguments = sys.argv[1:]
    if not arguments:
        order = json.loads(orders.get())
        os.environ.update(order["environment"])
        arguments = order["arguments"]
    worker.main(arguments)
