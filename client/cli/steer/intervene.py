"""`orga steer`, `add-context`, `pause`, `resume`, `abort` and `override`: send a message to a run."""

import json as json_module
from collections.abc import Awaitable, Callable
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from orga.client.cli.connection import CliContext, run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import Command
from orga.client.cli.options import ConfigFile, Json, RunId, text_or_stdin
from orga.client.cli.shown.text import write_json, write_note
from orga.client.runs.agents import AgentHandle
from orga.client.runs.needed_worker import needed_worker
from orga.client.server.versions import may_be_served
from orga.workflows.types.text import clean_text

Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="The text; - reads it from standard input.", show_default=False)
]


def steer(run: RunId, guidance: Text, json: Json = False, config: ConfigFile = None) -> Command:
    """Example: orga steer ID "Look at the tests as well." """
    text = clean_text(text_or_stdin(guidance))
    return _send_signal("steer", run, lambda handle: handle.steer(text), config, as_json=json)


def add_context(run: RunId, context: Text, json: Json = False, config: ConfigFile = None) -> Command:
    """Example: orga add-context ID - < notes.md"""
    text = clean_text(text_or_stdin(context))
    return _send_signal("add_context", run, lambda handle: handle.add_context(text), config, as_json=json)


def pause(run: RunId, json: Json = False, config: ConfigFile = None) -> Command:
    """Example: orga pause ID"""
    return _send_signal("pause", run, AgentHandle.pause, config, as_json=json)


def resume(run: RunId, json: Json = False, config: ConfigFile = None) -> Command:
    """Example: orga resume ID"""
    return _send_signal("resume", run, AgentHandle.resume, config, as_json=json)


def abort(
    run: RunId,
    why: Annotated[str, typer.Argument(metavar="WHY", help="The reason, for the result and the journal.")] = "",
    json: Json = False,
    config: ConfigFile = None,
) -> Command:
    """Example: orga abort ID "The question is settled." """
    return _send_signal("abort", run, lambda handle: handle.abort(clean_text(why)), config, as_json=json)


async def _send_signal(
    name: str, run: str, send: Callable[[AgentHandle], Awaitable[None]], config: Path | None, *, as_json: bool
) -> None:
    """Send a message to a run, and report it as the signal `name`."""
    async with run_context(run, config) as (context, run_id):
        await send(context.run(run_id))
        if as_json:
            write_json({"id": run_id, "signal": name})
        else:
            write_note(f"{name} sent to {run_id}; see: orga journal {quote(run_id)}")
        await note_missing_worker(context, context.run(run_id), NOTHING_HAPPENS)


NOTHING_HAPPENS = "nothing happens until one does"


async def note_missing_worker(context: CliContext, run: AgentHandle, consequence: str) -> None:
    """Write a note, with the remedy, if no worker polls that takes the run."""
    described = await run.describe()
    if not await may_be_served(context.client, described):
        needed, queue = await needed_worker(described), described.task_queue
        write_note(f"no {needed.name} polls task queue {queue!r}: {consequence}; start one with: {needed.command}")


def override(
    run: RunId,
    skill: Annotated[str, typer.Argument(metavar="SKILL", help="A tool, or an agent that the goal may delegate to.")],
    input_: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="The arguments as a JSON object, or a task as text; - reads standard input."
        ),
    ],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> Command:
    """The gate judges the step like any other. The journal records an unusable override as InterventionRefused.

    Example: orga override ID read_file '{"path": "README.md"}'

    Example: orga override ID scout "Look at the folder of 1999 first."
    """
    from orga.client.runs.goals import GoalHandle  # the other commands need no types of goals

    parsed = _parse_input(text_or_stdin(input_))

    async def send(run: AgentHandle) -> None:
        await GoalHandle(run.client, run.id).override_step(skill, parsed)

    return _send_signal("override_step", run, send, config, as_json=json)


def _parse_input(text: str) -> dict[str, Any] | str:
    if not text.strip():
        raise UsageError("INPUT: is empty. Give the arguments as a JSON object, or a task as text")
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json_module.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"INPUT: begins like a JSON object but is not one: {error}") from None
