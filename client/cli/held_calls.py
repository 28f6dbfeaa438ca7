"""Calls that wait for a person's yes, as people read them: all that would be carried out, nothing hidden."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orga.client.cli.ages import time_left
from orga.client.cli.terminal_text import on_one_line
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.text import in_full

Call = dict[str, Any]
"""As a wait of kind `approval` has it: id, tool, arguments, reason, approvers, expires_at."""

_HEAD = ("approval", "tool", "approvers", "expires", "arguments")


def held_calls(wait: ShownQuestion) -> list[Call]:
    """Return the calls of a question that nobody has decided yet."""
    return list(wait.data.get("calls", [])) if wait.kind == "approval" else []


def table(calls: Sequence[Call], now: datetime) -> list[str]:
    """Return a line for each call below a head, its reason under it; the arguments, which may be long, come last."""
    rows = [_HEAD, *(_row(call, now) for call in calls)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    lines = [_line(rows[0], widths)]
    for call, row in zip(calls, rows[1:], strict=True):
        lines.append(_line(row, widths))
        if reason := call.get("reason"):
            lines.append(f"  because: {on_one_line(str(reason), 400)}")
    return lines


def in_words(call: Call) -> str:
    """Return a call on one line that stays the same as time goes on."""
    why = f": {on_one_line(str(call['reason']), 300)}" if call.get("reason") else ""
    return f"{named(call)}{why} ({_approvers(call)})"


def named(call: Call) -> str:
    """Return the tool and its arguments."""
    return f"{_text(call, 'tool')} {_arguments(call)}"


def is_unseen(call: Call) -> bool:
    """Return whether its arguments are too long to be shown: a yes would be to what nobody has read."""
    return bool(call.get("arguments_digest"))


def _row(call: Call, now: datetime) -> tuple[str, ...]:
    left = time_left(datetime.fromisoformat(str(call["expires_at"])), now)
    return _text(call, "id"), _text(call, "tool"), _approvers(call), f"in {left}", _arguments(call)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    *short, last = row
    return "  ".join([*(cell.ljust(width) for cell, width in zip(short, widths, strict=True)), last])


def _approvers(call: Call) -> str:
    return on_one_line(", ".join(map(str, call.get("approvers") or ())), 200) or "anyone"


def _text(call: Call, key: str) -> str:
    """Return text in full: what is left out or invisible would be approved unseen."""
    return in_full(str(call.get(key) or ""))


def _arguments(call: Call) -> str:
    """Return all of the arguments or none: a part could be read as the whole."""
    if digest := call.get("arguments_digest"):
        return f"({call.get('arguments_bytes')} bytes, {in_full(str(digest))}: too long to stand here, --show has all)"
    return _text(call, "arguments")
