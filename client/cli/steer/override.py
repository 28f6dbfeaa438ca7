"""`orga override`: do something else in place of a goal's next step."""

import json as json_module
from typing import Annotated, Any

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import ConfigFile, Json, RunId, task_text
from orga.client.cli.steer.intervene import send_signal
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
    said = _parse_input(task_text(given))
    return send_signal(
        "override_step", run, lambda goal: goal.override_step(skill, said), config, kind=GoalHandle, as_json=json
    )


def _parse_input(text: str) -> dict[str, Any] | str:
    if not text.strip():
        raise UsageError("INPUT: give the arguments as a JSON object, or what it is to do")
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json_module.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"INPUT: this begins as a JSON object and is none: {error}") from None
