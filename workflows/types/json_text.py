"""JSON as models and strangers write it: its size told before it is read, each key once, one value alone."""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, TypeGuard, cast

from pydantic_core import from_json, to_json

_SHOWN_CHARS = 40
"""Of a key that stands there twice."""


def unique_keys_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
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


def has_unique_keys(text: str) -> bool:
    """Return whether the objects of a JSON text have each key once, however its letters are written."""
    try:
        json.loads(text, object_pairs_hook=unique_keys_object)
    except (ValueError, RecursionError):
        return False
    return True


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def has_more_parts(data: bytes | bytearray, most: int) -> bool:
    """Return whether it has more lists, objects and commas than that, those within strings left out."""
    if _mark_count(data) <= most:
        return False
    return data.count(b'"') - data.count(b'\\"') > 2 * most or _mark_count(without_strings(data)) > most


def without_strings(data: bytes | bytearray) -> bytes:
    """Return what stands between the strings."""
    return _STRING.sub(b"", data)


def _mark_count(data: bytes | bytearray) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


FINAL_ANSWER = "final_answer"
"""The tool by which a model answers where its provider enforces no schema; no other tool has this name."""

_SURROGATE = re.compile("[\ud800-\udfff]")

MAX_DEPTH = 100
"""Lists and objects inside each other; JSON that is 200 deep could be written but never be read again."""


_CONTAINER_TYPES = (dict, list, tuple)


def _contained_values(holder: dict[object, object] | list[object]) -> Iterable[object]:
    return holder.values() if isinstance(holder, dict) else holder


def is_deeper(value: object, levels: int) -> bool:
    """Return whether lists and objects stand inside each other more than `levels` deep; looked at level by level."""
    here: Iterable[object] = (value,)
    for _ in range(levels + 1):
        inner: list[Any] = [each for each in here if isinstance(each, _CONTAINER_TYPES)]
        if not inner:
            return False
        here = list(chain.from_iterable(map(_contained_values, inner)))
    return True


def parsed_answer_json(text: str) -> Any:
    """Return the value of an answer that has to be JSON; one that is returned can be written and read again.

    Raises:
        ValueError: With short feedback for the model, and the position where there is one, in characters from 0.
    """
    body = _without_fence(_without_thinking(text.strip()))
    if _SURROGATE.search(body):
        raise ValueError("it holds half a character (a lone surrogate)")
    try:
        value = from_json(body, allow_inf_nan=False)
        from_json(to_json(value, inf_nan_mode="constants"), allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"it is not JSON alone: {_json_error_text(body, error)}") from None
    if is_deeper(value, MAX_DEPTH):
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    try:
        json.loads(body, object_pairs_hook=unique_keys_object)
    except ValueError as error:
        raise ValueError(f"it is not JSON with each key once: {error}") from None
    return value


MAX_READ_CHARS = 100_000
"""Of a text that an object is looked for in."""

_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")


MAX_TRIES = 100
"""Places of one text at which JSON is looked for: a try may read the text to its end."""


def find_json_object(text: str, keys: Sequence[str] = (), listed: str = "") -> dict[str, Any]:
    """Return the JSON object of a text: all of it, else one among its words.

    Words, thinking and fences around it do no harm, nor commas too many. Without `keys` the first object counts. With
    them it is the object that has the first of them, also if it stands under a key of another.

    Args:
        text: What a model or a person wrote.
        keys: Those that tell the object from others, the surest first.
        listed: The key of a list of objects that may also stand alone, or under another key.

    Raises:
        ValueError: There is none, or several that say different things.
    """
    if len(text) > MAX_READ_CHARS:
        raise ValueError(f"it has {len(text)} characters, {MAX_READ_CHARS} at most")
    try:
        found, error = [parsed_answer_json(text)], None
    except ValueError as caught:
        found, is_whole = _embedded_values(_without_thinking(text.strip()))
        error = None if is_whole and found else caught
    objects = [cast("dict[str, Any]", each) for each in found if isinstance(each, dict)]
    alone = [item for each in found if _is_of_objects(each) and len(each) == 1 for item in each]
    inner = [below for each in objects for below in _inner_objects(each, keys[:1])]
    for candidates in ([*objects, *alone], inner, _lists_as_objects(found, listed)):
        for key in keys:
            if having := [each for each in candidates if key in each]:
                return _only_object_with_value(having, key)
    if error is not None:
        raise error
    if not objects:
        raise ValueError(f"it is no object but {type(found[0]).__name__}")
    return objects[0]


def _only_object_with_value(having: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    """Return the object, of several the one with a value.

    Raises:
        ValueError: Several have different values.
    """
    full = [each for each in having if each[key]] or having
    if any(each != full[0] for each in full):
        raise ValueError(f"it holds {len(full)} different objects with {key!r}")
    return full[0]


def _inner_objects(value: dict[str, Any], keys: Sequence[str], depth: int = 2) -> list[dict[str, Any]]:
    """Return the objects under a key of this one that have one of the keys, each with what stands beside it."""
    found = list[dict[str, Any]]()
    for each in value.values() if depth else ():
        if isinstance(each, dict):
            below = cast("dict[str, Any]", each)
            found += [below] if any(key in below for key in keys) else _inner_objects(below, keys, depth - 1)
    return [{**value, **each} for each in found]


def _lists_as_objects(found: Sequence[object], listed: str) -> list[dict[str, Any]]:
    """Return lists of objects, alone or the only one under a key of an object, as objects that have `listed`."""
    made = list[dict[str, Any]]()
    for value in found if listed else ():
        if isinstance(value, dict):
            beside = cast("dict[str, Any]", value)
            lists = [each for each in beside.values() if _is_of_objects(each)]
            made += [{**beside, listed: lists[0]}] if len(lists) == 1 else []
        elif _is_of_objects(value):
            made.append({listed: value})
    return made


def _is_of_objects(value: object) -> TypeGuard[list[dict[str, Any]]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return bool(items) and all(isinstance(each, dict) for each in items)


_OPENING_BRACKET = re.compile(r"[{\[]")
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]', re.DOTALL)
_LIST = re.compile(r'\[\s*[]{["]')


def _embedded_values(text: str) -> tuple[list[Any], bool]:
    """Return the JSON values among the words of a text, in order, and whether none of what looks like JSON is broken.

    Nothing is taken from inside of what is broken: an object there may be an argument of the one that was meant.
    """
    found, at, is_whole = list[Any](), 0, True
    for _ in range(MAX_TRIES):
        opened = _OPENING_BRACKET.search(text, at)
        if opened is None:
            return found, is_whole
        at = opened.start()
        decoded = _json_at(text, at)
        region = decoded or _bracketed_text(text, at)
        try:
            found.append(parsed_answer_json(decoded or _TRAILING_COMMA.sub("", region)))
        except ValueError:
            if text[at] == "[" and not _LIST.match(text, at):
                region = "["  # a word in brackets
            elif not region or ('"' in region and ":" in region):
                return found, False
            is_whole = is_whole and ":" not in region
        at += len(region)
    return found, False


def _json_at(text: str, at: int) -> str:
    """Return what is JSON from there on, "" for nothing."""
    try:
        return text[at : json.JSONDecoder().raw_decode(text, at)[1]]
    except (ValueError, RecursionError):
        return ""


def _bracketed_text(text: str, at: int) -> str:
    """Return what stands from this bracket to the one that closes it, "" if none does."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if not depth:
            return text[at : token.end()]
    return ""


_THINKING = {f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning")}


def _without_thinking(text: str) -> str:
    """Return what follows the thinking that some servers leave in the text; of a few, only its end is there."""
    opened = [end for start, end in _THINKING.items() if text.startswith(start)]
    if text.startswith(("{", "[", '"', "`")):
        return text
    ends = [at + len(end) for end in opened or _THINKING.values() if (at := text.find(end)) >= 0]
    return text[min(ends) :].strip() if ends else text


def _without_fence(text: str) -> str:
    """Return what stands in the fence that a text is; no pattern finds that in a time linear in its spaces."""
    opening, _, rest = text.partition("\n")
    is_fenced = opening.startswith("```") and "`" not in opening[3:] and rest.endswith("```")
    return rest.removesuffix("```").strip() if is_fenced else text


def _json_error_text(body: str, error: ValueError) -> str:
    """Return what is wrong. The fast parser decides and counts bytes; the other one only says where, in characters."""
    try:
        json.loads(body)
    except json.JSONDecodeError as located:
        near = body[located.pos : located.pos + 20]
        return f"{located.msg} at character {located.pos}" + (f", where it says {near!r}" if near else ", at its end")
    except (ValueError, RecursionError):
        return "a number is out of range, or it is nested too deep"
    return re.sub(r" at line \d+ column \d+$", "", str(error))
