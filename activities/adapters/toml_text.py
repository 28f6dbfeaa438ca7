"""TOML that somebody else may have written. Dotted keys nest without an end, and cost the parser time and memory."""

import re
import tomllib
from typing import Any, cast

MAX_DEPTH = 100

_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_DEPTH},}}+")


class NestedTooDeeply(ValueError):
    """Values that no code of ours looks into."""

    def __init__(self) -> None:
        super().__init__(f"its values are nested too deeply, in more than {MAX_DEPTH} levels")


def read_toml(text: str) -> dict[str, Any]:
    """Return the tables of a text.

    Raises:
        NestedTooDeeply: They are.
        TOMLDecodeError: A ValueError: it is no TOML.
    """
    if _DEEP_KEY.search(text):
        raise NestedTooDeeply
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise NestedTooDeeply from None
    level: list[Any] = [found]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise NestedTooDeeply
    return found


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []
