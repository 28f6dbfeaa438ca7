"""Repairs replies that are almost JSON: wrong quotes, commas and comments. It never invents the rest of a cut text.

Activities do this, never a workflow, because histories outlive the versions of a library.
"""

import json
import re
import sys
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.process_streams import child_output, limit_this_process
from orga.workflows.types.json_text import as_objects, find_json_object

MAX_CHARS = 20_000
MAX_DEPTH = 50
"""Nesting levels of lists and objects. The library gets slow long before it gives up."""

_TIMEOUT_S = 20.0
"""Seconds for the process. It may use one second of processor time, which takes longer on a busy machine."""

_BRACKETS = {"{": 1, "[": 1, "}": -1, "]": -1}
_FENCE_END = re.compile(r"[`\s]+\Z")


async def repaired_json(text: str) -> str:
    """Return the JSON object that a text was meant to be. Return "" if it has none, is valid, or cannot be repaired.

    JSON with other faults (a key twice, NaN, too deep) is not repaired. Neither is a cut text, whose end would be
    invented.
    """
    start = text.find("{")
    body = _FENCE_END.sub("", text[start:]) if start >= 0 and len(text) - start <= MAX_CHARS else ""
    if not body or not _is_complete(body) or _is_json(body):
        return ""
    try:
        output = await child_output(__name__, body.encode(errors="replace"), _TIMEOUT_S)
        return _single_object(json.loads(output))
    except (ValueError, RecursionError):
        return ""


def _is_complete(body: str) -> bool:
    """Return whether a text is not too deep, and either closes all its brackets or ends with a closing one."""
    depth = 0
    for character in body:
        depth += _BRACKETS.get(character, 0)
        if depth > MAX_DEPTH:
            return False
    return depth <= 0 or body[-1] in "}]"


def _is_json(body: str) -> bool:
    try:
        json.JSONDecoder().raw_decode(body)
    except ValueError:
        return False
    except RecursionError:
        return True
    return True


def _single_object(values: Any) -> str:
    """Return the only object among these values, as text. Text after it does no harm."""
    objects = [value for value in as_objects(values) if value]
    if len(objects) != 1:
        return ""
    text = to_json(objects[0]).decode()
    find_json_object(text)  # raises ValueError for faults that are not repaired
    return text


_WORK_S = 1.0
"""Seconds of processor time. Some texts take the library quadratic time, so it runs in a process of its own."""

_MEMORY_BYTES = 1_000_000_000


def main() -> None:
    """Read a text from standard input, and write the repaired values as a JSON list. A guess raises an error instead.

    The text is put into a list, because outside of a list the library ignores a repeated key, even in strict mode.
    """
    from json_repair import repair_json

    limit_this_process(_MEMORY_BYTES, _WORK_S)
    text = f"[{sys.stdin.buffer.read().decode()}\n]"
    values = repair_json(text, return_objects=True, skip_json_loads=True, strict=True)
    sys.stdout.write(json.dumps(values))
