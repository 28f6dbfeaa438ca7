"""`orga open`: a run in the Temporal UI."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.output import json_result, note, result
from orga.client.cli.session import of_run
from orga.client.server.endpoint import Endpoint


def open_run(
    run: RunId,
    *,
    show: Annotated[bool, typer.Option("--print", help="Write the address and open nothing.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Open a run in the Temporal UI, in your browser, and write the address.

    The embedded server has a UI; of a server of your own, [notify] ui_url says where its UI is. Without a terminal
    nothing is opened.

    Example: orga open ID
    """
    return completed(_open(run, config, opens=not show and not json and sys.stdout.isatty(), as_json=json))


async def _open(named: str, config: Path | None, *, opens: bool, as_json: bool) -> int:
    async with of_run(named, config) as (here, run_id):
        await here.run(run_id).describe()  # an id that is none is told here, not in the browser
        link = here.connection.at_ui(here.loaded.config.notify.ui_url).link(run_id)
        if link is None:
            raise UsageError(_unknown_ui(here.connection.endpoint))
    if as_json:
        json_result({"id": run_id, "ui": link})
        return 0
    result(link)
    if opens and not _browsed(link):
        note("no browser could be started here; open the address where there is one")
    return 0


def _browsed(link: str) -> bool:
    import webbrowser

    return webbrowser.open(link)


def _unknown_ui(server: Endpoint) -> str:
    return f"where the UI of the server at {server.address} is, nobody says: set [notify] ui_url"
