"""Two streams: the result alone on stdout, everything else on stderr."""

import json
import sys
from typing import Any

from client.cli.terminal_text import harmless
from workflows.types.visible import escaped


def result(text: str) -> None:
    """Write what the command was called for."""
    sys.stdout.write(harmless(text) + "\n")
    sys.stdout.flush()


def json_result(value: Any, *, indent: int | None = 2) -> None:
    """Write the result as JSON; what a terminal would act on is escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    sys.stdout.write(escaped(text) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Write a line for the person at the terminal."""
    sys.stderr.write(harmless(text) + "\n")
    sys.stderr.flush()
