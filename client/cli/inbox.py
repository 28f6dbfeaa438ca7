"""`orga inbox`: what waits for a person, over all runs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from client.cli.ages import age
from client.cli.deciding import in_one_line
from client.cli.held_calls import held_calls, table
from client.cli.interrupts import completed
from client.cli.options import ConfigFile, Json
from client.cli.output import json_result, note, result
from client.cli.required_attributes import require_attributes
from client.cli.session import session
from client.cli.terminal_text import on_one_line
from client.inbox import Question
from client.inbox import inbox as waiting_questions
from workflows.decisions.answering import commands
from workflows.types.search_attributes import WAITING
from workflows.types.waits import WaitKind


def inbox(
    *,
    queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Only what a tool's recovery puts into this queue.")
    ] = None,
    kind: Annotated[WaitKind | None, typer.Option(help="Only questions of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 20,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show what waits for a person in all runs, oldest run first, each with the command that decides it.

    A run whose worker does not answer is shown by what it waits for alone.

    Example: orga inbox --kind escalation --queue storage
    """
    return completed(_inbox(queue, kind, limit, config, as_json=json))


async def _inbox(queue: str | None, kind: WaitKind | None, limit: int, config: Path | None, *, as_json: bool) -> int:
    found: list[Question] = []
    more = False
    async with session(config) as here:
        await require_attributes(here.client, WAITING)
        async for question in waiting_questions(here.client, kind=kind, queue=queue):
            if len(found) == limit:
                more = True
                break
            found.append(question)
    now = datetime.now(UTC)
    if as_json:
        json_result([_json(question, now) for question in found])
    elif found:
        result("\n\n".join(_text(question, now) for question in found))
    else:
        note("nothing waits for a person")
    if more:
        note(f"there is more: orga inbox --limit {limit * 2}")
    return 0


def _text(question: Question, now: datetime) -> str:
    run = f"{question.run_id} ({question.agent or 'no agent'})"
    if (wait := question.wait) is None:
        return f"{question.kind}  {run}\n  {_unanswered(question)}"
    queue = "" if wait.queue == "default" else f"  queue {wait.queue}"
    head = f"{wait.kind}  {run}  {wait.wait_id}  {age(wait.since, now)}{queue}"
    lines = [head, f"  {on_one_line(wait.question, 400)}"]
    if error := wait.data.get("error"):
        lines.append(f"  {on_one_line(str(error), 400)}")
    if arguments := wait.data.get("arguments"):
        lines.append(f"  {wait.data.get('tool', '')} {on_one_line(str(arguments), 400)}")
    if calls := held_calls(wait):
        lines += [f"  {line}" for line in table(calls, now)]
    return "\n".join([*lines, f"  → {in_one_line(question.run_id, wait, question.budgets)}"])


def _unanswered(question: Question) -> str:
    return f"no worker answers on task queue {question.task_queue!r}; start one with: orga worker"


def _json(question: Question, now: datetime) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "run": question.run_id,
        "agent": question.agent,
        "kind": question.kind,
        "task_queue": question.task_queue,
        "answered": question.wait is not None,
    }
    if (wait := question.wait) is None:
        return shown
    return shown | {
        **wait.model_dump(mode="json", include={"question", "queue", "since", "data"}),
        "id": wait.wait_id,
        "age_s": round((now - wait.since).total_seconds(), 1),
        "commands": commands(question.run_id, wait, question.budgets),
    }
