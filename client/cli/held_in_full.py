"""Held calls with all of their arguments, however long: what a yes would be for."""

from collections.abc import Sequence
from hashlib import sha256
from shlex import quote
from typing import Any

from pydantic_core import to_json

from orga.client.cli.deciding import NO_COMMAND
from orga.client.cli.terminal_text import on_one_line
from orga.workflows.types.questions import Item
from orga.workflows.types.text import can_be_typed, in_full


def lines_of(run_id: str, items: Sequence[Item]) -> list[list[str]]:
    """Return the lines of each call, and the command that lets all of them run."""
    ids = " ".join(quote(item.approval_id) for item in items)
    command = f"orga approve {quote(run_id)} {ids}" if can_be_typed(run_id) else NO_COMMAND
    return [*map(_lines, items), [f"→ {command}"]]


def as_json(item: Item) -> dict[str, Any]:
    """Return what `--json` writes of a call."""
    arguments = _arguments(item)
    return {
        **item.model_dump(mode="json", include={"approval_id", "version", "reason", "approvers", "expires_at"}),
        "tool": item.call["name"],
        "arguments": item.call["arguments"],
        "arguments_bytes": len(arguments),
        "arguments_digest": _digest(arguments),
    }


def _lines(item: Item) -> list[str]:
    arguments = _arguments(item)
    return [
        f"approval   {in_full(item.approval_id)}",
        f"tool       {in_full(item.call['name'])}",
        f"approvers  {on_one_line(', '.join(item.approvers), 600) or 'anyone'}",
        f"expires    {item.expires_at.astimezone():%Y-%m-%d %H:%M:%S}",
        *([f"because    {on_one_line(item.reason, 600)}"] if item.reason else []),
        f"arguments  {len(arguments)} bytes, {_digest(arguments)}",
        f"           {in_full(arguments.decode())}",
    ]


def _arguments(item: Item) -> bytes:
    return to_json(item.call["arguments"], inf_nan_mode="strings")


def _digest(arguments: bytes) -> str:
    return f"sha256:{sha256(arguments).hexdigest()}"
