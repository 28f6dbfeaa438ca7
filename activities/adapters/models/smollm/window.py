"""The window: cut the oldest tool results, then other old text, until a conversation fits the small model."""

from dataclasses import dataclass, replace

_KEPT_MESSAGES = 24
"""Newest messages that are kept; the instructions and the task stay as well."""
_FLOOR = 120
"""Characters that are left of a cut text, before the marker."""


@dataclass(frozen=True)
class Line:
    """One chat message as the engine takes it."""

    role: str
    content: str
    is_tool_result: bool = False


def fit(lines: tuple[Line, ...], budget: int) -> tuple[Line, ...]:
    """Return lines of at most `budget` characters where the floors allow it, each cut marked in its place.

    Tool results are cut oldest first, then the other messages oldest first, the instructions and the task last.
    """
    kept = list(_newest(lines))
    for index in _cutting_order(kept):
        excess = sum(len(line.content) for line in kept) - budget
        if excess <= 0:
            break
        kept[index] = _cut(kept[index], excess)
    return tuple(kept)


def _newest(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    head = 1 + next((i for i, line in enumerate(lines) if line.role == "user"), -1)
    return lines[:head] + lines[head:][-_KEPT_MESSAGES:]


def _cutting_order(lines: list[Line]) -> list[int]:
    head = 1 + next((i for i, line in enumerate(lines) if line.role == "user"), -1)
    results = [i for i in range(head, len(lines)) if lines[i].is_tool_result]
    others = [i for i in range(head, len(lines)) if not lines[i].is_tool_result]
    return [*results, *others, *range(head)]


def _cut(line: Line, excess: int) -> Line:
    marker = f"\n[cut to fit the model's window: {len(line.content)} characters in all]"
    room = max(_FLOOR, len(line.content) - excess - len(marker))
    if room + len(marker) >= len(line.content):
        return line
    return replace(line, content=line.content[:room] + marker)
