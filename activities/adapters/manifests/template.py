"""Texts of a manifest with places for arguments: `{name}`, `{secret:VARIABLE}`; `{{` and `}}` are braces."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"(secret:)?([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class Slot:
    """A place for a value."""

    name: str
    is_secret: bool = False
    """The name is that of a variable of the worker's environment."""


Template = tuple[str | Slot, ...]


@lru_cache(maxsize=1_000)
def parsed(source: str) -> Template:
    """Return literal texts and slots in order.

    Raises:
        ValueError: A brace that belongs to nothing, or a name that is none.
    """
    parts: list[str | Slot] = []
    at = 0
    for found in _PART.finditer(source):
        parts.append(source[at : found.start()])
        parts.append(_part(found))
        at = found.end()
    return _joined([*parts, source[at:]])


def slots(template: Template) -> Iterator[Slot]:
    """Yield the slots."""
    return (part for part in template if isinstance(part, Slot))


def only_slot(template: Template) -> Slot | None:
    """Return the slot of a template that is nothing else."""
    only = template[0] if len(template) == 1 else None
    return only if isinstance(only, Slot) else None


def filled(template: Template, fill: Callable[[Slot], str]) -> str:
    """Return the text; a value is never looked at for slots again."""
    return "".join(part if isinstance(part, str) else fill(part) for part in template)


def _part(found: re.Match[str]) -> str | Slot:
    if found[0] in ("{{", "}}"):
        return found[0][0]
    name = None if found[1] is None else _NAME.fullmatch(found[1])
    if name is None:
        raise ValueError(f"{found[0]!r} is no placeholder; write {{name}}, or {{{{ for a brace")
    return Slot(name[2], bool(name[1]))


def _joined(parts: list[str | Slot]) -> Template:
    joined: list[str | Slot] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)
