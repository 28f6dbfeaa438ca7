"""Reads JSON from models and strangers: checks its size, refuses repeated keys, finds an answer within other text.

The functions `as_…` accept any value. A value of an unexpected type counts as absent.
"""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeGuard, cast

from pydantic_core import from_json, to_json

_SHOWN_CHARS = 40


def unique_keys_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object, as an `object_pairs_hook` of `json.loads`. Raise ValueError if a key is repeated."""
    built: dict[str, Any] = {}
    for key, value in pairs:
        if key in built:
            raise ValueError(f"the key {key[:_SHOWN_CHARS]!r} is used twice")
        built[key] = value
    return built


def has_unique_keys(text: str) -> bool:
    """Return True if no object of a JSON text repeats a key, even one written with escapes."""
    try:
        json.loads(text, object_pairs_hook=unique_keys_object)
    except (ValueError, RecursionError):
        return False
    return True


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A JSON string, even if the text ends within it."""


def has_more_parts(data: bytes | bytearray, most: int) -> bool:
    """Return True if there are more than `most` strings, or lists, objects and commas outside of strings."""
    if _mark_count(data) <= most:
        return False
    quotes = data.count(b'"') - data.count(b'\\"')
    return quotes > 2 * most or _mark_count(without_strings(data)) > most


def without_strings(data: bytes | bytearray) -> bytes:
    return _STRING.sub(b"", data)


def _mark_count(data: bytes | bytearray) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


FINAL_ANSWER = "final_answer"
"""The tool for a model's final answer if its provider enforces no schema. No other tool has this name."""

_SURROGATE = re.compile("[\ud800-\udfff]")

MAX_DEPTH = 100
"""Depth of nested lists and objects. JSON that is 200 deep could be written but never read again."""

_CONTAINER_TYPES = (dict, list, tuple)


def _contained_values(holder: dict[object, object] | list[object]) -> Iterable[object]:
    return holder.values() if isinstance(holder, dict) else holder


def is_deeper(value: object, levels: int) -> bool:
    """Return True if lists and objects are nested deeper than `levels`. It needs no recursion."""
    level: Iterable[object] = (value,)
    for _ in range(levels + 1):
        inner: list[Any] = [value for value in level if isinstance(value, _CONTAINER_TYPES)]
        if not inner:
            return False
        level = list(chain.from_iterable(map(_contained_values, inner)))
    return True


def parsed_answer_json(text: str) -> Any:
    """Return the value of an answer that has to be JSON. The value can be written and read again.

    Raise ValueError with short feedback for the model, and the position in characters from 0, if there is one.
    """
    body = _without_fence(_without_thinking(text.strip()))
    if _SURROGATE.search(body):
        raise ValueError("it holds half a character (a lone surrogate)")
    try:
        value = _writable_value(body)
    except ValueError as error:
        raise ValueError(f"it is not JSON alone: {_json_error_text(body, error)}") from None
    if is_deeper(value, MAX_DEPTH):
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    try:
        json.loads(body, object_pairs_hook=unique_keys_object)
    except ValueError as error:
        raise ValueError(f"it is not JSON with each key once: {error}") from None
    return value


def _writable_value(text: str) -> Any:
    """Return the value. Raise ValueError if it cannot be written and read again, such as `1e400`, which is infinite."""
    value = from_json(text, allow_inf_nan=False)
    from_json(to_json(value, inf_nan_mode="constants"), allow_inf_nan=False)
    return value


def parsed_last_line(text: str) -> Any:
    """Return the value of the last line of a text, or None if it is no JSON that can be written and read again."""
    try:
        value = _writable_value(text.rpartition("\n")[2])
    except (ValueError, TypeError):  # TypeError: the line holds half a character
        return None
    return None if is_deeper(value, MAX_DEPTH) else value


MAX_READ_CHARS = 100_000

_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")

MAX_TRIES = 100
"""Brackets of one text at which parsing is tried. Each try may read the text to its end."""


def find_json_object(text: str, keys: Sequence[str] = (), listed: str = "") -> dict[str, Any]:
    """Return the JSON object that is the text, or one within it. Raise ValueError if there is none, or several differ.

    Words, thinking and fences around it are ignored, and so are extra commas. `keys` are keys of the wanted object, the
    most certain first, even if it is nested in another object. Without `keys` the first object is returned. The list
    of objects under the key `listed` may also be the whole text, or have another key.
    """
    if len(text) > MAX_READ_CHARS:
        raise ValueError(f"it has {len(text)} characters, {MAX_READ_CHARS} at most")
    try:
        values, error = [parsed_answer_json(text)], None
    except ValueError as caught:
        found = _embedded_values(_without_thinking(text.strip()))
        values, error = found.values, None if found.values and found.is_complete else caught
    objects = [cast("dict[str, Any]", value) for value in values if isinstance(value, dict)]
    in_lists_of_one = [value[0] for value in values if _is_list_of_objects(value) and len(value) == 1]
    nested = [inner for outer in objects for inner in _inner_objects(outer, keys[:1])]
    for candidates in ([*objects, *in_lists_of_one], nested, _lists_as_objects(values, listed)):
        for key in keys:
            if with_key := [candidate for candidate in candidates if key in candidate]:
                return _only_object_with_value(with_key, key)
    if error is not None:
        raise error
    if not objects:
        raise ValueError(f"it is no object but {type(values[0]).__name__}")
    return objects[0]


def _only_object_with_value(objects: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    """Return the object whose `key` has a value, or the first if none has. Raise ValueError if such objects differ."""
    full = [candidate for candidate in objects if candidate[key]] or objects
    if any(candidate != full[0] for candidate in full):
        raise ValueError(f"it holds {len(full)} different objects with {key!r}")
    return full[0]


def _inner_objects(value: dict[str, Any], keys: Sequence[str], depth: int = 2) -> list[dict[str, Any]]:
    """Return the objects nested in this one that have one of the keys, each merged with its parent's fields."""
    if not depth:
        return []
    with_key = list[dict[str, Any]]()
    for inner in as_objects([*value.values()]):
        with_key += [inner] if any(key in inner for key in keys) else _inner_objects(inner, keys, depth - 1)
    return [{**value, **inner} for inner in with_key]


def _lists_as_objects(values: Sequence[object], listed: str) -> list[dict[str, Any]]:
    """Return an object with the key `listed` for each list of objects that is a value, or the only list in one."""
    objects = list[dict[str, Any]]()
    for value in values if listed else ():
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            lists = [field for field in fields.values() if _is_list_of_objects(field)]
            objects += [{**fields, listed: lists[0]}] if len(lists) == 1 else []
        elif _is_list_of_objects(value):
            objects.append({listed: value})
    return objects


def _is_list_of_objects(value: object) -> TypeGuard[list[dict[str, Any]]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return bool(items) and all(isinstance(item, dict) for item in items)


_OPENING_BRACKET = re.compile(r"[{\[]")
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]', re.DOTALL)
_LIST = re.compile(r'\[\s*[]{["]')


class _EmbeddedValues(NamedTuple):
    """The JSON values within a text, in order."""

    values: list[Any]
    is_complete: bool
    """False if another part of the text looks like JSON but is invalid. The wanted value may be there."""


def _embedded_values(text: str) -> _EmbeddedValues:
    """Return the values. Nothing inside broken JSON is used: an object there may be an argument of the wanted one."""
    values, at, is_complete = list[Any](), 0, True
    for _ in range(MAX_TRIES):
        opened = _OPENING_BRACKET.search(text, at)
        if opened is None:
            return _EmbeddedValues(values, is_complete)
        at = opened.start()
        decoded = _json_at(text, at)
        region = decoded or _bracketed_text(text, at)
        try:
            values.append(parsed_answer_json(decoded or _TRAILING_COMMA.sub("", region)))
        except ValueError:
            is_word_in_brackets = text[at] == "[" and not _LIST.match(text, at)
            if is_word_in_brackets:
                region = "["  # only the bracket is passed over, since JSON may follow it
            elif not region or ('"' in region and ":" in region):  # broken JSON
                break
            is_complete = is_complete and ":" not in region
        at += len(region)
    return _EmbeddedValues(values, is_complete=False)


def _json_at(text: str, at: int) -> str:
    try:
        return text[at : json.JSONDecoder().raw_decode(text, at)[1]]
    except (ValueError, RecursionError):
        return ""


def _bracketed_text(text: str, at: int) -> str:
    """Return the text from this bracket to its closing bracket, or "" if there is none."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if not depth:
            return text[at : token.end()]
    return ""


_THINKING = {f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning")}


def _without_thinking(text: str) -> str:
    """Return the text after the thinking that some servers leave in it. Some of them send only the closing tag."""
    if text.startswith(("{", "[", '"', "`")):
        return text
    tags = [end for start, end in _THINKING.items() if text.startswith(start)] or _THINKING.values()
    ends = [at + len(tag) for tag in tags if (at := text.find(tag)) >= 0]
    return text[min(ends) :].strip() if ends else text


def _without_fence(text: str) -> str:
    """Return the content of a fenced text. A pattern would take time quadratic in the number of spaces."""
    opening, _, rest = text.partition("\n")
    is_fenced = opening.startswith("```") and "`" not in opening[3:] and rest.endswith("```")
    return rest.removesuffix("```").strip() if is_fenced else text


def _json_error_text(body: str, error: ValueError) -> str:
    """Return the problem, at a position in characters if the standard parser finds it. The fast parser counts bytes."""
    try:
        json.loads(body)
    except json.JSONDecodeError as located:
        near = body[located.pos : located.pos + 20]
        return f"{located.msg} at character {located.pos}" + (f", where it says {near!r}" if near else ", at its end")
    except (ValueError, RecursionError):
        return "a number is out of range, or it is nested too deep"
    return re.sub(r" at line \d+ column \d+$", "", str(error))


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def as_object(value: object) -> dict[str, Any]:
    """Return `value` if it is an object, or else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def refuse_constant(name: str) -> None:
    """Refuse NaN and the infinities, as a `parse_constant` of `json.loads`. JSON lacks them."""
    raise ValueError(f"{name} is no JSON")


def parsed_object(data: str | bytes) -> dict[str, Any]:
    """Return the object that a JSON text holds, or an empty one if it holds no object."""
    try:
        return as_object(json.loads(data))
    except (ValueError, RecursionError):
        return {}


def as_objects(value: object) -> list[dict[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def inner_values(value: object) -> list[Any]:
    """Return the values of an object or the items of a list, or else nothing."""
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return `value` if it is a string, or else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return `value` as a whole number of tokens, or 0 if it is no plausible count."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(value) if 0 < value < 1e15 else 0
