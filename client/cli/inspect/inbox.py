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
from orga.client.cli.shown.text import age, on_one_line, separated_blocks, write_json, write_note, write_result
from orga.client.runs.inbox import InboxEntry, InboxKind
from orga.client.runs.inbox import inbox as waiting_questions
from orga.workflows.decisions.limits import question_commands
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
    """If a run's worker does not answer, only the kind of its question is shown. Answers of goals that could not be
    delivered are shown for a week, or until orga requeue delivers them.

    Example: orga inbox --kind escalation --queue storage
    """
    found: list[InboxEntry] = []
    async with cli_context(config) as here:
        await require_attributes(here.client, WAITING, DEAD_LETTERS)
        async for question in waiting_questions(here.client, kind=kind, queue=queue):
            found.append(question)
            if len(found) > limit:
                break
    now, shown = datetime.now(UTC), found[:limit]
    if json:
        write_json([_question_json(question, now) for question in shown])
    elif shown:
        write_result(*separated_blocks(question_lines(question, now) for question in shown))
    else:
        write_note("nothing waits for a person")
    if len(found) > limit:
        write_note(f"there is more: orga inbox --limit {limit * 2}")


def question_lines(question: InboxEntry, now: datetime) -> list[str]:
    """Return the lines that show an entry. The command that decides it comes last."""
    run = f"{full_field_text(question.run_id)} ({full_field_text(question.agent or 'no agent')})"
    if (failed := question.undelivered) is not None:
        delivery, ended_at = failed.delivery, failed.goal.close_time or failed.goal.start_time
        return [
            f"{question.kind}  {run}  {age(ended_at, now)}",
            f"  not delivered to {delivery.name} ({delivery.kind}): {on_one_line(delivery.error, 400)}",
            f"  stays here until {failed.told_until.astimezone():%Y-%m-%d %H:%M}, or until it is delivered",
            f"  → {_delivery_command(question.run_id, delivery.name)}",
        ]
    if (wait := question.wait) is None:
        return [f"{full_field_text(question.kind)}  {run}", *_unanswered_lines(question)]
    queue = "" if wait.queue == "default" else f"  queue {full_field_text(wait.queue)}"
    head = f"{wait.kind}  {run}  {full_field_text(wait.wait_id)}  {age(wait.since, now)}{expiry_text(wait, now)}{queue}"
    lines = [head, f"  asks: {on_one_line(wait.question, 400)}"]
    if error := wait.data.get("error"):
        lines.append(f"  error: {on_one_line(str(error), 400)}")
    if wait.data.get("arguments"):
        lines.append(f"  call: {call_with_arguments(wait.data)}")
    if calls := held_calls(wait):
        lines += [f"  {line}" for line in held_call_table(calls, now)]
    return [*lines, f"  → {commands_text(question.run_id, wait)}"]


def _delivery_command(goal_id: str, name: str) -> str:
    return f"orga requeue {quote(goal_id)} {name}"


def _unanswered_lines(question: InboxEntry) -> list[str]:
    if failing := question.failing:
        return [f"  {on_one_line(failing.problem_line, 400)}", f"  → {failing.remedy}"]
    start = f"start one with: {full_field_text(question.worker_command)}"
    return [f"  no worker answers on task queue '{full_field_text(question.task_queue)}'; {start}"]


def _question_json(question: InboxEntry, now: datetime) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "run": question.run_id,
        "agent": question.agent,
        "kind": question.kind,
        "task_queue": question.task_queue,
        "answered": question.wait is not None,
    }
    if (failing := question.failing) is not None:
        shown["task_fails"] = {**asdict(failing), "way_out": failing.remedy}
    if (failed := question.undelivered) is not None:
        return shown | {
            "answered": True,
            "id": failed.delivery.name,
            "delivery": failed.delivery.model_dump(mode="json"),
            "told_until": failed.told_until.isoformat(),
            "commands": [_delivery_command(question.run_id, failed.delivery.name)],
        }
    if (wait := question.wait) is None:
        return shown
    return shown | {
        **wait.model_dump(mode="json", include={"question", "queue", "since", "data"}),
        "id": wait.wait_id,
        "age_s": round((now - wait.since).total_seconds(), 1),
        "commands": question_commands(question.run_id, wait),
    }
