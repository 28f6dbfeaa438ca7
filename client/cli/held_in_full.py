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

UNKNOWN = "no command: the run names these arguments again once it goes on (is it paused?); ask again then"


def lines_of(run_id: str, items: Sequence[Item]) -> list[list[str]]:
    """Return the lines of each call, and the command that lets all of them run."""
    ids = " ".join(quote(item.approval_id) for item in items)
    command = f"orga approve {quote(run_id)} {ids}" if can_be_typed(run_id) else NO_COMMAND
    is_whole = all(map(_is_whole, items))
    return [*map(_lines, items), [f"→ {command if is_whole else UNKNOWN}"]]


def as_json(item: Item) -> dict[str, Any]:
    """Return what `--json` writes of a call."""
    return {
        **item.model_dump(mode="json", include={"approval_id", "version", "reason", "approvers", "expires_at"}),
        "tool": item.call["name"],
        "arguments": item.call["arguments"] if _is_whole(item) else None,
        **_known_by(item),
    }


def _lines(item: Item) -> list[str]:
    known = _known_by(item)
    return [
        f"approval   {in_full(item.approval_id)}",
        f"tool       {in_full(item.call['name'])}",
        f"approvers  {on_one_line(', '.join(item.approvers), 600) or 'anyone'}",
        f"expires    {item.expires_at.astimezone():%Y-%m-%d %H:%M:%S}",
        *([f"because    {on_one_line(item.reason, 600)}"] if item.reason else []),
        f"arguments  {known['arguments_bytes']} bytes, {known['arguments_digest']}",
        *([f"           {in_full(_arguments(item).decode())}"] if _is_whole(item) else []),
    ]


def _is_whole(item: Item) -> bool:
    """Return whether the run has the arguments at hand: where room was short it goes by their digest for a while."""
    return "arguments_digest" not in item.call


def _arguments(item: Item) -> bytes:
    return to_json(item.call["arguments"], inf_nan_mode="strings")


def _known_by(item: Item) -> dict[str, Any]:
    """Return size and digest of the arguments."""
    if not _is_whole(item):
        return {key: item.call[key] for key in ("arguments_bytes", "arguments_digest")}
    arguments = _arguments(item)
    return {"arguments_bytes": len(arguments), "arguments_digest": f"sha256:{sha256(arguments).hexdigest()}"}
