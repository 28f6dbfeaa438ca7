"""Held calls with all of their arguments, however long: what a yes would be for."""

from collections.abc import Sequence
from hashlib import sha256
from shlex import quote
from typing import Any

from pydantic_core import to_json

from orga.client.cli.deciding import NO_COMMAND
from orga.client.cli.terminal_text import on_one_line
from orga.workflows.types.questions import Hold
from orga.workflows.types.text import can_be_typed, in_full


def lines_of(run_id: str, holds: Sequence[Hold]) -> list[list[str]]:
    """Return the lines of each call, and the command that lets all of them run."""
    ids = " ".join(quote(hold.approval_id) for hold in holds)
    command = f"orga approve {quote(run_id)} {ids}" if can_be_typed(run_id) else NO_COMMAND
    return [*map(_lines, holds), [f"→ {command}"]]


def as_json(hold: Hold) -> dict[str, Any]:
    """Return what `--json` writes of a call."""
    arguments = _arguments(hold)
    return {
        **hold.model_dump(mode="json", include={"approval_id", "version", "reason", "approvers", "expires_at"}),
        "tool": hold.call.name,
        "arguments": hold.call.arguments,
        "arguments_bytes": len(arguments),
        "arguments_digest": _digest(arguments),
    }


def _lines(hold: Hold) -> list[str]:
    arguments = _arguments(hold)
    return [
        f"approval   {in_full(hold.approval_id)}",
        f"tool       {in_full(hold.call.name)}",
        f"approvers  {on_one_line(', '.join(hold.approvers), 600) or 'anyone'}",
        f"expires    {hold.expires_at.astimezone():%Y-%m-%d %H:%M:%S}",
        *([f"because    {on_one_line(hold.reason, 600)}"] if hold.reason else []),
        f"arguments  {len(arguments)} bytes, {_digest(arguments)}",
        f"           {in_full(arguments.decode())}",
    ]


def _arguments(hold: Hold) -> bytes:
    return to_json(hold.call.arguments, inf_nan_mode="strings")


def _digest(arguments: bytes) -> str:
    return f"sha256:{sha256(arguments).hexdigest()}"
