"""Values that people write as text, in the environment or on the command line, read by the type of their key."""

import json
from types import NoneType
from typing import Any, get_origin

from orga.workflows.types.record import is_model, kinds_of


def from_text(annotation: Any, text: str) -> Any:
    """Return what `text` stands for: `null`, JSON for lists and tables, `a,b` for lists, else the text for pydantic."""
    kinds = kinds_of(annotation)
    if text == "null" and NoneType in kinds:
        return None
    is_list = any(get_origin(kind) is tuple for kind in kinds)
    if text.lstrip().startswith(("[", "{")) and (is_list or any(_is_table(kind) for kind in kinds)):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return [part.strip() for part in text.split(",") if part.strip()] if is_list else text


def _is_table(kind: Any) -> bool:
    return is_model(kind) or get_origin(kind) is dict
