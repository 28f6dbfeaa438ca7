"""`orga answer`: answer what a run or a goal asks."""

from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.interrupts import completed
from orga.client.cli.login_name import login_name
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.output import json_result, note
from orga.client.cli.session import of_run
from orga.client.cli.terminal_text import on_one_line


def answer(
    run: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model reads as the answer.")],
    *,
    question: Annotated[str, typer.Option(metavar="ID", help="Which question; the one that is open without.")] = "",
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who answers; your login name without.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Answer the question that a run or a goal waits with; it goes on by that.

    Example: orga answer ID "The report of 1999."
    """
    return completed(_answer(run, text, question, by or login_name(), config, as_json=json))


async def _answer(named: str, text: str, question: str, by: str, config: Path | None, *, as_json: bool) -> int:
    async with of_run(named, config) as (here, run_id):
        answered = await here.run(run_id).answer(text, question, by)
    if as_json:
        json_result({"id": run_id, "question": answered})
    else:
        note(f"answered {on_one_line(answered)}")
    return 0
