"""JSON as models and strangers write it: its size told before it is read, each key once, one value alone."""

import json
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, cast

from pydantic_core import from_json, to_json

_SHOWN_CHARS = 40
"""Of a key that stands there twice."""


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object, as the `object_pairs_hook` of `json.loads`.

    Raises:
        ValueError: A key stands there twice.
    """
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:_SHOWN_CHARS]!r} stands there twice")
        found[key] = value
    return found


def stand_once(text: str) -> bool:
    """Return whether the objects of a JSON text have each key once, however its letters are written."""
    try:
        json.loads(text, object_pairs_hook=each_once)
    except (ValueError, RecursionError):
        return False
    return True


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def has_more_parts(data: bytes | bytearray, most: int) -> bool:
    """Return whether it has more lists, objects and commas than that, those within strings left out."""
    if _marks(data) <= most:
        return False
    return data.count(b'"') - data.count(b'\\"') > 2 * most or _marks(without_strings(data)) > most


def without_strings(data: bytes | bytearray) -> bytes:
    """Return what stands between the strings."""
    return _STRING.sub(b"", data)


def _marks(data: bytes | bytearray) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


FINAL_ANSWER = "final_answer"
"""The tool by which a model answers where its provider enforces no schema; no other tool has this name."""

_HALF = re.compile("[\ud800-\udfff]")

MAX_DEPTH = 100
"""Lists and objects inside each other; JSON that is 200 deep could be written but never be read again."""


_HOLDERS = (dict, list, tuple)


def _held_by(holder: dict[object, object] | list[object]) -> Iterable[object]:
    return holder.values() if isinstance(holder, dict) else holder


def is_deeper(value: object, levels: int) -> bool:
    """Return whether lists and objects stand inside each other more than `levels` deep; looked at level by level."""
    here: Iterable[object] = (value,)
    for _ in range(levels + 1):
        inner: list[Any] = [each for each in here if isinstance(each, _HOLDERS)]
        if not inner:
            return False
        here = list(chain.from_iterable(map(_held_by, inner)))
    return True


def answer_json(text: str) -> Any:
    """Return the value of an answer that has to be JSON; one that is returned can be written and read again.

    Raises:
        ValueError: With short feedback for the model, and the position where there is one, in characters from 0.
    """
    body = _unfenced(_without_thinking(text.strip()))
    if _HALF.search(body):
        raise ValueError("it holds half a character (a lone surrogate)")
    try:
        value = from_json(body, allow_inf_nan=False)
        from_json(to_json(value, inf_nan_mode="constants"), allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"it is not JSON alone: {_cause(body, error)}") from None
    if is_deeper(value, MAX_DEPTH):
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    try:
        json.loads(body, object_pairs_hook=each_once)
    except ValueError as error:
        raise ValueError(f"it is not JSON with each key once: {error}") from None
    return value


MAX_READ_CHARS = 100_000
"""Of a text that an object is looked for in."""

_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")


def object_in(text: str) -> dict[str, Any]:
    """Return the JSON object of a text: all of it, else the one that begins at its first brace.

    Words and fences around it do no harm, nor commas too many.

    Raises:
        ValueError: There is none.
    """
    if len(text) > MAX_READ_CHARS:
        raise ValueError(f"it has {len(text)} characters, {MAX_READ_CHARS} at most")
    try:
        value = answer_json(text)
    except ValueError:
        value = _embedded(text)
        if value is None:
            raise
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise ValueError(f"it is no object but {type(value).__name__}")


def _embedded(text: str) -> Any:
    start = text.find("{")
    if start < 0:
        return None
    for candidate in (text[start:], _TRAILING_COMMA.sub("", text[start:])):
        try:
            _, end = json.JSONDecoder().raw_decode(candidate)
            return answer_json(candidate[:end])
        except (ValueError, RecursionError):
            continue
    return None


_THINKING = {f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning")}


def _without_thinking(text: str) -> str:
    """Return what follows the thinking that some servers leave in the text; of a few, only its end is there."""
    opened = [end for start, end in _THINKING.items() if text.startswith(start)]
    if text.startswith(("{", "[", '"', "`")):
        return text
    ends = [at + len(end) for end in opened or _THINKING.values() if (at := text.find(end)) >= 0]
    return text[min(ends) :].strip() if ends else text


def _unfenced(text: str) -> str:
    """Return what stands in the fence that a text is; no pattern finds that in a time linear in its spaces."""
    opening, _, rest = text.partition("\n")
    is_fenced = opening.startswith("```") and "`" not in opening[3:] and rest.endswith("```")
    return rest.removesuffix("```").strip() if is_fenced else text


def _cause(body: str, error: ValueError) -> str:
    """Return what is wrong. The fast parser decides and counts bytes; the other one only says where, in characters."""
    try:
        json.loads(body)
    except json.JSONDecodeError as located:
        near = body[located.pos : located.pos + 20]
        return f"{located.msg} at character {located.pos}" + (f", where it says {near!r}" if near else ", at its end")
    except (ValueError, RecursionError):
        return "a number is out of range, or it is nested too deep"
    return re.sub(r" at line \d+ column \d+$", "", str(error))
