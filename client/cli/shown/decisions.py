"""Renders calls that wait for a person's approval, and the commands that decide a question."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from shlex import quote
from typing import Any

from pydantic_core import to_json

from orga.client.cli.shown.text import terminal_line, time_left
from orga.workflows.decisions.control.notifications import decision_commands
from orga.workflows.types.questions import Item, ShownQuestion
from orga.workflows.types.text import can_be_typed, full_field_text
from orga.workflows.types.tool_calls.recovery import DeadLetter

NO_COMMAND = "no command: the run's id has characters that cannot be typed; decide it in the Temporal UI"


def commands_text(run_id: str, wait: ShownQuestion) -> str:
    """Return the first command in full, and only the differing part of each other command."""
    first, *others = decision_commands(run_id, wait) or [NO_COMMAND]
    previous, short = first, list[str]()
    for other in others:
        before_choice = other.rpartition(" --")[0] + " "
        short.append(other.removeprefix(before_choice) if previous.startswith(before_choice) else other)
        previous = other
    return f"{first} (or {', '.join(short)})" if short else first


def expiry_text(wait: ShownQuestion, now: datetime) -> str:
    """Return the end of a line about a question: when it expires; "" if it has no expiry of its own."""
    expires_at = wait.data.get("expires_at")
    return f", expires in {time_left(datetime.fromisoformat(str(expires_at)), now)}" if expires_at else ""


def requeue_command(run_id: str, letter: DeadLetter, *, is_over: bool) -> str:
    """Return the command that sends a dead letter again. A run that has ended does so in a fork."""
    if not can_be_typed(run_id):
        return NO_COMMAND
    return f"orga requeue {quote(run_id)} {quote(letter.letter_id)}{' --fork' if is_over else ''}"


HeldCall = dict[str, Any]
"""A call in a question of kind `approval`: id, tool, arguments, reason, approvers, expires_at."""

_HEAD = ("approval", "tool", "approvers", "expires", "arguments")


def held_calls(wait: ShownQuestion) -> list[HeldCall]:
    """Return the undecided calls that a question asks approval for."""
    return list(wait.data.get("calls", [])) if wait.kind == "approval" else []


def held_call_table(calls: Sequence[HeldCall], now: datetime) -> list[str]:
    """Return a head, and for each call a line and its reason. Arguments are in the last column, as they may be long."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for call in calls:
        left = time_left(datetime.fromisoformat(str(call["expires_at"])), now)
        texts = (_text(call, "id"), _text(call, "tool"), _approvers_text(call), f"in {left}", _arguments_text(call))
        rows.append(texts)
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    lines = [_table_line(rows[0], widths)]
    for call, row in zip(calls, rows[1:], strict=True):
        lines.append(_table_line(row, widths))
        if reason := call.get("reason"):
            lines.append(f"  because: {terminal_line(str(reason), 400)}")
    return lines


def held_call_text(call: HeldCall) -> str:
    """Return a call on one line. The text does not depend on the time."""
    why = f": {terminal_line(str(call['reason']), 300)}" if call.get("reason") else ""
    return f"{call_with_arguments(call)}{why} ({_approvers_text(call)})"


def call_with_arguments(call: HeldCall) -> str:
    return f"{_text(call, 'tool')} {_arguments_text(call)}"


def has_unshown_arguments(call: HeldCall) -> bool:
    """Return whether the arguments are too long to show. An approval would then cover what nobody has read."""
    return bool(call.get("arguments_digest"))


def _table_line(row: Sequence[str], widths: Sequence[int]) -> str:
    *short, last = row
    return "  ".join([*(cell.ljust(width) for cell, width in zip(short, widths, strict=True)), last])


def _approvers_text(call: HeldCall) -> str:
    return terminal_line(", ".join(map(str, call.get("approvers") or ())), 200) or "anyone"


def _text(call: HeldCall, key: str) -> str:
    """Return a field in full, so that nobody approves a part that is cut or invisible."""
    return full_field_text(str(call.get(key) or ""))


def _arguments_text(call: HeldCall) -> str:
    """Return all arguments or none, so that nobody takes a part for the whole."""
    if digest := call.get("arguments_digest"):
        return (
            f"({call.get('arguments_bytes')} bytes, {full_field_text(str(digest))}: too long to "
            "show here, --show prints all)"
        )
    return _text(call, "arguments")


NO_ARGUMENTS = (
    "no command: the run shows these arguments again after it continues (is it paused?). Repeat this command then"
)


def approval_blocks(run_id: str, items: Sequence[Item]) -> list[list[str]]:
    """Return a block of lines for each call, and one with the command that approves all of them."""
    ids = " ".join(quote(item.approval_id) for item in items)
    command = f"orga approve {quote(run_id)} {ids}" if can_be_typed(run_id) else NO_COMMAND
    is_whole = all(map(_has_full_arguments, items))
    return [*map(_approval_lines, items), [f"→ {command if is_whole else NO_ARGUMENTS}"]]


def approval_json(item: Item) -> dict[str, Any]:
    return {
        **item.model_dump(mode="json", include={"approval_id", "version", "reason", "approvers", "expires_at"}),
        "tool": item.call["name"],
        "arguments": item.call["arguments"] if _has_full_arguments(item) else None,
        **_argument_facts(item),
    }


def _approval_lines(item: Item) -> list[str]:
    facts = _argument_facts(item)
    return [
        f"approval   {full_field_text(item.approval_id)}",
        f"tool       {full_field_text(item.call['name'])}",
        f"approvers  {terminal_line(', '.join(item.approvers), 600) or 'anyone'}",
        f"expires    {item.expires_at.astimezone():%Y-%m-%d %H:%M:%S}",
        *([f"because    {terminal_line(item.reason, 600)}"] if item.reason else []),
        f"arguments  {facts['arguments_bytes']} bytes, {facts['arguments_digest']}",
        *([f"           {full_field_text(_full_arguments(item).decode())}"] if _has_full_arguments(item) else []),
    ]


def _has_full_arguments(item: Item) -> bool:
    """Return whether the run has the arguments in full. If room was short, it has only their digest for a while."""
    return "arguments_digest" not in item.call


def _full_arguments(item: Item) -> bytes:
    return to_json(item.call["arguments"], inf_nan_mode="strings")


def _argument_facts(item: Item) -> dict[str, Any]:
    if not _has_full_arguments(item):
        return {key: item.call[key] for key in ("arguments_bytes", "arguments_digest")}
    arguments = _full_arguments(item)
    return {"arguments_bytes": len(arguments), "arguments_digest": f"sha256:{sha256(arguments).hexdigest()}"}
