"""On which line of a TOML file a key stands: `tomllib` does not tell."""

from functools import lru_cache
from typing import Any, cast

from orga.activities.adapters.toml_text import read_toml


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """Return the line, from 1, of the key at `path`, or of the nearest table around it, else the first inside it; None
    when there is none.
    """
    best: tuple[int, int] | None = None
    inside: int | None = None
    for number, here in _keys(text):
        if path[: len(here)] == here and (best is None or len(here) > best[0]):
            best = (len(here), number)
        if here[: len(path)] == path:
            inside = inside or number
    return best[1] if best else inside


@lru_cache(maxsize=1)
def _keys(text: str) -> list[tuple[int, tuple[str, ...]]]:
    """Return the lines that open a table or set a key, each with its whole path."""
    found: list[tuple[int, tuple[str, ...]]] = []
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _header(line)
        table = table if header is None else header
        key = _key(line) if header is None else ()
        if key is not None:
            found.append((number, (*table, *key)))
    return found


def _header(line: str) -> tuple[str, ...] | None:
    return _single_path(line) if line.lstrip().startswith("[") else None


def _key(line: str) -> tuple[str, ...] | None:
    name, equals, _ = line.partition("=")
    return _single_path(f"{name} = 0") if equals else None


def _single_path(toml: str) -> tuple[str, ...] | None:
    """Return the only path that this piece of TOML opens, or None where it is no such piece."""
    try:
        table: Any = read_toml(toml)
    except ValueError:
        return None
    path: list[str] = []
    while isinstance(table, dict) and len(cast("dict[str, Any]", table)) == 1:
        name, table = next(iter(cast("dict[str, Any]", table).items()))
        path.append(name)
    return tuple(path) or None
