"""Values that people write as text, in the environment or on the command line, read by the type of their key."""

import json
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel


def annotation_at(model: type[BaseModel], path: tuple[str, ...]) -> Any:
    """Return the type of the key at `path`, or None when there is no such key."""
    here: Any = model
    for key in path:
        here = _below(here, key)
        if here is None:
            return None
    return here


def known_keys(model: type[BaseModel], path: tuple[str, ...]) -> list[str]:
    """Return the keys that the table at `path` can hold; none when it takes names of any kind."""
    here = next((kind for kind in _kinds(annotation_at(model, path)) if _is_model(kind)), None)
    return list(here.model_fields) if here else []


def from_text(annotation: Any, text: str) -> Any:
    """Return what `text` stands for: `null`, JSON for lists and tables, `a,b` for lists, else the text for pydantic."""
    kinds = _kinds(annotation)
    if text == "null" and NoneType in kinds:
        return None
    is_list = any(get_origin(kind) is tuple for kind in kinds)
    if text.lstrip().startswith(("[", "{")) and (is_list or any(_is_table(kind) for kind in kinds)):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return [part.strip() for part in text.split(",") if part.strip()] if is_list else text


def _below(annotation: Any, key: str) -> Any:
    for kind in _kinds(annotation):
        if _is_model(kind) and key in kind.model_fields:
            return kind.model_fields[key].annotation
        if get_origin(kind) is dict:
            return get_args(kind)[1]
    return None


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """Return the alternatives of a type, without `Annotated`."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        return tuple(kind for part in get_args(annotation) for kind in _kinds(part))
    return (annotation,)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_table(kind: Any) -> bool:
    return _is_model(kind) or get_origin(kind) is dict
