"""Replies that are nearly JSON: quotes, commas and comments that are wrong are put right; what was cut is not made up.

Done where the reply is received and never in a workflow, whose histories outlive the versions of a library.
"""

import asyncio
import json
import re
from asyncio.subprocess import DEVNULL, PIPE
from typing import Any, cast

from pydantic_core import to_json

from orga.activities.adapters import repaired_json_child
from orga.child import held_program
from orga.workflows.types.json_text import find_json_object

MAX_CHARS = 20_000
MAX_DEPTH = 50
"""Lists and objects inside each other; the library is slow long before it gives up."""

PROCESS_TIMEOUT_S = 20.0
"""For the process, whose own time ends after a second of work; a busy machine gives it little."""

_BRACKETS = {"{": 1, "[": 1, "}": -1, "]": -1}
_FENCE_END = re.compile(r"[`\s]+\Z")


async def repaired_json(text: str) -> str:
    """Return the JSON object that a text was meant to be, or "": it holds none, is one already, or cannot be repaired.

    A text that is JSON and wrong otherwise (a key twice, NaN, too deep) is not touched, nor one that was cut: its end
    would be made up.
    """
    start = text.find("{")
    body = _FENCE_END.sub("", text[start:]) if start >= 0 and len(text) - start <= MAX_CHARS else ""
    if not body or not _is_complete(body) or _is_json(body):
        return ""
    try:
        return _single_object(json.loads(await _child_output(body)))
    except (ValueError, RecursionError, TimeoutError):
        return ""


def _is_complete(body: str) -> bool:
    """Return whether a text ends where something was closed, or behind all that was opened, and is not too deep."""
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


def _single_object(found: Any) -> str:
    """Return the one object among what was found, as text; words behind it do no harm."""
    listed = cast("list[Any]", found) if isinstance(found, list) else []
    objects = [cast("dict[str, Any]", each) for each in listed if isinstance(each, dict) and each]
    if len(objects) != 1:
        return ""
    text = to_json(objects[0]).decode()
    find_json_object(text)
    return text


async def _child_output(body: str) -> bytes:
    """Return what the process writes; nothing where it was ended."""
    program = held_program(repaired_json_child.__name__)
    process = await asyncio.create_subprocess_exec(
        *program.argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}, pass_fds=(program.number,)
    )
    try:
        async with asyncio.timeout(PROCESS_TIMEOUT_S):
            return (await process.communicate(body.encode(errors="replace")))[0]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
