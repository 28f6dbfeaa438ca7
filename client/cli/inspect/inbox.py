"""`orga inbox`: everything in all runs that waits for a person."""

from dataclasses import asdict
from datetime import UTC, datetime
from shlex import quote
from typing import Annotated, Any

import typer

from orga.client.cli.connection import cli_context
from orga.client.cli.inspect.runs import require_attributes
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.decisions import (
    call_with_arguments,
    commands_text,
    expiry_text,
    held_call_table,
    held_calls,
)
from orga.client.cli.shown.text import age, separated_blocks, terminal_line, write_json, write_note, write_result
from orga.client.runs.inbox import InboxEntry, InboxKind
from orga.client.runs.inbox import inbox as inbox_entries
from orga.workflows.decisions.control.notifications import decision_commands
from orga.workflows.types.names import DEAD_LETTERS, WAITING
from orga.workflows.types.text import full_field_text


async def inbox(
    *,
    queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Only questions that a tool's recovery puts into this queue.")
    ] = None,
    kind: Annotated[InboxKind | None, typer.Option(help="Only entries of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of entries.")] = 20,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """If a run's worker does not answer, only the kind of its question is shown. If a goal's answer could not be
    delivered, it is shown for a week, or until orga requeue delivers it.

    Example: orga inbox --kind escalation --queue storage
    """
    entries: list[InboxEntry] = []
    async with cli_context(config) as context:
        await require_attributes(context.client, WAITING, DEAD_LETTERS)
        async for entry in inbox_entries(context.client, kind=kind, queue=queue):
            entries.append(entry)
            if len(entries) > limit:
                break
    now, shown = datetime.now(UTC), entries[:limit]
    if json:
        write_json([_entry_json(entry, now) for entry in shown])
    elif shown:
        write_result(*separated_blocks(inbox_entry_lines(entry, now) for entry in shown))
    else:
        write_note("nothing waits for a person")
    if len(entries) > limit:
        write_note(f"there is more: orga inbox --limit {limit * 2}")


def inbox_entry_lines(entry: InboxEntry, now: datetime) -> list[str]:
    run = f"{full_field_text(entry.run_id)} ({full_field_text(entry.agent or 'no agent')})"
    if (failed := entry.undelivered) is not None:
        delivery, ended_at = failed.delivery, failed.goal.close_time or failed.goal.start_time
        return [
            f"{entry.kind}  {run}  {age(ended_at, now)}",
            f"  not delivered to {delivery.name} ({delivery.kind}): {terminal_line(delivery.error, 400)}",
            f"  stays here until {failed.listed_until.astimezone():%Y-%m-%d %H:%M}, or until it is delivered",
            f"  → {_delivery_command(entry.run_id, delivery.name)}",
        ]
    if (wait := entry.wait) is None:
        return [f"{full_field_text(entry.kind)}  {run}", *_unanswered_lines(entry)]
    queue = "" if wait.queue == "default" else f"  queue {full_field_text(wait.queue)}"
    head = f"{wait.kind}  {run}  {full_field_text(wait.wait_id)}  {age(wait.since, now)}{expiry_text(wait, now)}{queue}"
    lines = [head, f"  asks: {terminal_line(wait.question, 400)}"]
    if error := wait.data.get("error"):
        lines.append(f"  error: {terminal_line(str(error), 400)}")
    if wait.data.get("arguments"):
        lines.append(f"  call: {call_with_arguments(wait.data)}")
    if calls := held_calls(wait):
        lines += [f"  {line}" for line in held_call_table(calls, now)]
    return [*lines, f"  → {commands_text(entry.run_id, wait)}"]


def _delivery_command(goal_id: str, name: str) -> str:
    return f"orga requeue {quote(goal_id)} {name}"


def _unanswered_lines(entry: InboxEntry) -> list[str]:
    if failing := entry.failing:
        return [f"  {terminal_line(failing.problem_line, 400)}", f"  → {failing.remedy}"]
    silent = f"no {full_field_text(entry.worker)} answers on task queue '{full_field_text(entry.task_queue)}'"
    return [f"  {silent}; start one with: {full_field_text(entry.worker_command)}"]


def _entry_json(entry: InboxEntry, now: datetime) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "run": entry.run_id,
        "agent": entry.agent,
        "kind": entry.kind,
        "task_queue": entry.task_queue,
        "answered": entry.wait is not None,
    }
    if (failing := entry.failing) is not None:
        shown["task_fails"] = {**asdict(failing), "way_out": failing.remedy}
    if (failed := entry.undelivered) is not None:
        return shown | {
            "answered": True,
            "id": failed.delivery.name,
            "delivery": failed.delivery.model_dump(mode="json"),
            "told_until": failed.listed_until.isoformat(),
            "commands": [_delivery_command(entry.run_id, failed.delivery.name)],
        }
    if (wait := entry.wait) is None:
        return shown
    return shown | {
        **wait.model_dump(mode="json", include={"question", "queue", "since", "data"}),
        "id": wait.wait_id,
        "age_s": round((now - wait.since).total_seconds(), 1),
        "commands": decision_commands(entry.run_id, wait),
    }
