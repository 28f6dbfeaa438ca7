"""Reads TOML that anybody may have written. Endlessly nested dotted keys would cost the parser time and memory."""

import re
import tomllib
from typing import Any

from orga.workflows.types.json_text import inner_values

MAX_DEPTH = 100  # levels of tables, lists and dotted keys

_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_DEPTH},}}+")


class TomlTooDeep(ValueError):
    """The values are nested too deeply for our code."""

    def __init__(self) -> None:
        super().__init__(f"its values are nested too deeply, in more than {MAX_DEPTH} levels")


def read_toml(text: str) -> dict[str, Any]:
    """Raise TOMLDecodeError, or TomlTooDeep if the values are nested too deeply."""
    if _DEEP_KEY.search(text):
        raise TomlTooDeep
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise TomlTooDeep from None
    level: list[Any] = [table]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in inner_values(value)]
    if level:
        raise TomlTooDeep
    return table
