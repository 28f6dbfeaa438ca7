"""Program of a process that repairs one text, within limits: some texts take the repairer quadratic time."""

import json
import resource
import signal
import sys

WORK_S = 1.0
"""Seconds of processor time."""

MEMORY_BYTES = 1_000_000_000


def main() -> None:
    """Read a text from standard input and write the repaired values as a JSON list, or nothing if that is a guess.

    The text is also put into a list, because outside of one the library ignores a repeated key even in strict mode.
    """
    from json_repair import repair_json

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.setitimer(signal.ITIMER_PROF, WORK_S)  # its signal ends a process that does not handle it
    text = f"[{sys.stdin.buffer.read().decode()}\n]"
    found = repair_json(text, return_objects=True, skip_json_loads=True, strict=True)
    sys.stdout.write(json.dumps(found))
