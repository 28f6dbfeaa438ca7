"""Program of a process that repairs one text, within limits: some texts take the repairer quadratic time."""

import json
import resource
import signal
import sys

WORK_S = 1.0
"""Of processor time."""

MEMORY_BYTES = 1_000_000_000


def main() -> None:
    """Read a text on standard input and write what it stands for, as a JSON list; nothing where that is a guess.

    The list stands around the text, too: outside of one the library takes the last of two equal keys, strict or not.
    """
    from json_repair import repair_json

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.setitimer(signal.ITIMER_PROF, WORK_S)  # its signal ends a process that does not take it
    text = f"[{sys.stdin.buffer.read().decode()}\n]"
    found = repair_json(text, return_objects=True, skip_json_loads=True, strict=True)
    sys.stdout.write(json.dumps(found))
