"""Run a command's coroutine. The first Ctrl-C or SIGTERM cancels it, the second ends the process at once.

While a coroutine blocks, a signal has no effect. So a command that reads standard input or a file is a plain function:
it reads first, and then returns a coroutine. The file may be a pipe, which can block too.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

SHOW_CURSOR = "\x1b[?25h"
CTRL_C_EXIT_CODE = 128 + signal.SIGINT
"""The exit code of a command that Ctrl-C ended."""

Command = Coroutine[Any, Any, int | None]
"""The coroutine of a command. It returns the exit code; None is 0."""


def run_interruptible(command: Command) -> int | None:
    """Run to the end and return the exit code: 128 + the signal's number if a signal ended it."""
    with asyncio.Runner() as runner:
        return runner.run(_run_until_signal(command))


async def _run_until_signal(main: Command) -> int | None:
    loop, task = asyncio.get_running_loop(), asyncio.create_task(main)
    received: list[int] = []

    def interrupt(number: int) -> None:
        if received:
            _end_at_once(number)
        received.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return 128 + received[0]


@contextmanager
def interruptible_prompt() -> Generator[None]:
    """Let Ctrl-C or SIGTERM end a question at the terminal. The loop handles no signal while the question blocks it."""
    loop_handlers = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    }
    try:
        yield
    finally:
        for number, handler in loop_handlers.items():
            signal.signal(number, handler)


@contextmanager
def ctrl_c_handler(handler: Callable[[], None]) -> Generator[None]:
    """Call the handler on each Ctrl-C within the block. After the block, Ctrl-C ends the process at once."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, handler)
    try:
        yield
    finally:
        loop.add_signal_handler(signal.SIGINT, _end_at_once, signal.SIGINT)


def _end_at_once(number: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(SHOW_CURSOR)
        sys.stderr.flush()
    os._exit(128 + number)
