"""The events of a session, in words: its turns, and what is said to it."""

from collections.abc import Callable
from typing import Any, cast

from orga.client.cli.line import Line
from orga.client.cli.terminal_text import on_one_line
from orga.workflows.types.sessions.result import TURN_ENDED, TURN_STARTED

Data = dict[str, Any]

_UNTOLD = {"await_turn", "send"}
"""Turns tell of both; who waits for a turn changes nothing."""


def guidance(data: Data) -> str:
    """Return what steers the turn under way, of an intervention; "" of another one."""
    message = data.get("text") if data.get("kind") == "send" else None
    said = cast("Data", message) if isinstance(message, dict) else {}
    return str(said.get("text", "")) if said.get("when_busy") == "steer" else ""


def is_told_by_turns(data: Data) -> bool:
    """Return whether an intervention is shown by what becomes of it."""
    return data.get("kind") in _UNTOLD and not guidance(data)


def _begun(data: Data) -> list[Line]:
    return [Line(f"turn {data.get('turn')}: {on_one_line(str(data.get('message', '')), 300)}", "person")]


def _ended(data: Data) -> list[Line]:
    reason, detail = on_one_line(str(data.get("reason"))), on_one_line(str(data.get("detail") or ""), 300)
    told = f"turn {data.get('turn')} {reason}{': ' if detail else ''}{detail}"
    return [Line(told, "good" if reason == "completed" else "bad")]


SESSION_TELLERS: dict[str, Callable[[Data], list[Line]]] = {TURN_STARTED: _begun, TURN_ENDED: _ended}
