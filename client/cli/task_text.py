"""What people say to a run, as an argument or on standard input."""

import sys

from orga.client.cli.exit_codes import UsageError


def task_text(task: str) -> str:
    """Return the task; `-` stands for what comes on standard input."""
    if task != "-":
        return task
    if sys.stdin.isatty():
        sys.stderr.write("reading the task from standard input; end it with Ctrl-D\n")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the task on standard input is not UTF-8 text (byte {error.start})") from None
