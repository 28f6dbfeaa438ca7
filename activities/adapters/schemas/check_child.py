"""Program of a process that checks values against schemas. It ends at its limits, and when its worker ends."""

import json
import resource
import signal
import struct
import sys
from pathlib import Path

WORK_S = 1.0
"""Seconds of processor time for one check."""

MEMORY_BYTES = 2_000_000_000

_LENGTH = struct.Struct("!I")


def _check_errors(schema: str, value: str | None) -> list[str]:
    from orga.activities.adapters.schemas.validation import schema_errors, schema_validator

    if value is None or schema_validator(schema).is_valid(given := json.loads(value)):
        schema_validator(schema)
        return []
    return schema_errors(schema, given)


def main() -> None:
    """Answer checks one at a time until the worker closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, but the worker decides when it ends
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.path.append(str(Path(__file__).parents[4]))
    while head := sys.stdin.buffer.read(_LENGTH.size):
        schema, value = json.loads(sys.stdin.buffer.read(_LENGTH.unpack(head)[0]))
        signal.setitimer(signal.ITIMER_PROF, WORK_S)  # its signal ends a process that does not handle it
        try:
            answer: dict[str, list[str] | str] = {"errors": _check_errors(schema, value)}
        except ValueError as error:
            answer = {"broken": str(error)}
        signal.setitimer(signal.ITIMER_PROF, 0)
        body = json.dumps(answer).encode()
        sys.stdout.buffer.write(_LENGTH.pack(len(body)) + body)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
