"""On which line of a TOML file a key stands: `tomllib` does not tell."""

from typing import Any, cast

from orga.activities.adapters.toml_text import read_toml


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """Return the line, from 1, of the key at `path`, or of the nearest table around it, else the first inside it; None
    when there is none.
    """
    best: tuple[int, int] | None = None
    inside: int | None = None
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        here = _header(line)
        if here is not None:
            table = here
        else:
            key = _key(line)
            here = (*table, *key) if key else ()
        if here and path[: len(here)] == here and (best is None or len(here) > best[0]):
            best = (len(here), number)
        if here and here[: len(path)] == path:
            inside = inside or number
    return best[1] if best else inside


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
