"""`orga override`: replace the next step of a goal."""

import json as json_module
from typing import Annotated, Any

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import ConfigFile, Json, RunId, task_text
from orga.client.cli.steer.intervene import send_signal
from orga.client.runs.goals import GoalHandle


def override(
    run: RunId,
    skill: Annotated[str, typer.Argument(metavar="SKILL", help="A tool, or an agent that the goal may delegate to.")],
    given: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="The arguments as a JSON object, or a task as text; - reads standard input."
        ),
    ],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Replace the next step of a goal by this call. Steps that already run are not affected.

    The step passes the gate like any other. The journal records an unusable override as InterventionRefused.

    Example: orga override ID read_file '{"path": "README.md"}'

    Example: orga override ID scout "Look at the folder of 1999 first."
    """
    parsed = _parse_input(task_text(given))
    return send_signal(
        "override_step", run, lambda goal: goal.override_step(skill, parsed), config, kind=GoalHandle, as_json=json
    )


def _parse_input(text: str) -> dict[str, Any] | str:
    if not text.strip():
        raise UsageError("INPUT: is empty. Give the arguments as a JSON object, or a task as text")
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json_module.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"INPUT: begins like a JSON object but is not one: {error}") from None
