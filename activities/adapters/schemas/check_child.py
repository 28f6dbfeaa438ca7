"""Checks values against JSON Schemas. As a program it does so for a worker, and ends at its limits.

Called directly, a check has no limits: `arguments.py` decides which checks are quick enough for that.
"""

import json
import resource
import signal
import struct
import sys
from functools import lru_cache
from typing import Any

from jsonschema_rs import ReferencingError, RegexOptions, ValidationError, Validator, validator_cls_for

MAX_ERRORS = 10
MAX_CHARACTERS = 200


@lru_cache(maxsize=256)
def schema_validator(schema: str) -> Validator:
    """Return the validator of a schema, given as JSON. Its draft is the one of `$schema`, or else 2020-12.

    Raises:
        ValueError: The schema is invalid, refers to another document, or has a pattern with look-around or
            back-references, which cannot be matched in linear time.
    """
    try:
        given = json.loads(schema)
        # Without `offline` a remote `$ref` is fetched over the network.
        return validator_cls_for(given)(given, pattern_options=RegexOptions(), offline=True)
    except (ValidationError, ReferencingError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise ValueError(bounded_problem_line(f"its schema is invalid: {why}")) from error


def schema_errors(schema: str, value: Any) -> list[str]:
    errors: list[str] = []
    for error in schema_validator(schema).iter_errors(value):
        if len(errors) == MAX_ERRORS:
            break
        errors.append(bounded_problem_line(f"{_json_path(error.instance_path)}: {error.message}"))
    return errors


def bounded_problem_line(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def _json_path(parts: list[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


WORK_S = 1.0
"""Seconds of processor time for one check."""

MEMORY_BYTES = 2_000_000_000

_LENGTH = struct.Struct("!I")


def _check_errors(schema: str, value: str | None) -> list[str]:
    if value is None or schema_validator(schema).is_valid(given := json.loads(value)):
        schema_validator(schema)
        return []
    return schema_errors(schema, given)


def main() -> None:
    """Answer checks one at a time until the worker closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, but the worker decides when it ends
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
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
