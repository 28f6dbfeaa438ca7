"""`orga override`: do something else in place of a goal's next step."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.output import json_result, note
from orga.client.cli.session import session
from orga.client.cli.task_input import task_text
from orga.client.cli.terminal_text import on_one_line
from orga.client.runs.goals import GoalHandle


def override(
    run: RunId,
    skill: Annotated[str, typer.Argument(metavar="SKILL", help="A tool, or an agent that it may delegate to.")],
    given: Annotated[
        str,
        typer.Argument(metavar="INPUT", help="The arguments as a JSON object, or what it is to do; - reads it."),
    ],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Have this done in place of the step of a goal that is due next; what runs already goes on.

    The step passes the gate like any other. What is of no use stands in the journal as InterventionRefused.

    Example: orga override ID read_file '{"path": "README.md"}'

    Example: orga override ID scout "Look at the folder of 1999 first."
    """
    return completed(_override(run, skill, _input(task_text(given)), config, as_json=json))


def _input(text: str) -> dict[str, Any] | str:
    if not text.strip():
        raise UsageError("INPUT: give the arguments as a JSON object, or what it is to do")
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json_module.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"INPUT: this begins as a JSON object and is none: {error}") from None


async def _override(run_id: str, skill: str, given: dict[str, Any] | str, config: Path | None, *, as_json: bool) -> int:
    async with session(config) as here:
        await GoalHandle(here.client, run_id).override_step(skill, given)
    if as_json:
        json_result({"id": run_id, "sent": "override_step"})
    else:
        note(f"sent: {on_one_line(skill)} in place of the step that is due next")
    return 0
