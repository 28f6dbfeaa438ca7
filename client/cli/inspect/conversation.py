"""`orga conversation` shows the messages as the model sees them. `orga open` opens a run in the Temporal UI."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.connection import CliContext, run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.shown.text import (
    indented_lines,
    on_one_line,
    separated_blocks,
    write_json,
    write_note,
    write_result,
)
from orga.client.config.workplace import recorded_workplace, worker_command
from orga.client.errors import NoAnswer
from orga.client.server.endpoint import Endpoint
from orga.client.server.pollers import may_be_polled
from orga.workflows.decisions.result import call_summary
from orga.workflows.types.status import ShownMessage
from orga.workflows.types.text import full_field_text


def conversation(run: RunId, json: Json = False, config: ConfigFile = None) -> int:
    """If a worker polls, the command asks it. If none does, it replays the run's history itself.

    Example: orga conversation ID --json
    """
    return run_interruptible(_conversation(run, config, as_json=json))


async def _conversation(named: str, config: Path | None, *, as_json: bool) -> int:
    async with run_context(named, config) as (here, run_id):
        messages = await _read_messages(here, run_id)
    if as_json:
        write_json([message.model_dump(mode="json") for message in messages])
    elif messages:
        write_result(*separated_blocks(map(message_lines, messages)))
    return 0


async def _read_messages(here: CliContext, run_id: str) -> list[ShownMessage]:
    described = await here.run(run_id).describe()
    if await may_be_polled(here.client, described.task_queue):
        with suppress(NoAnswer):
            return await here.run(run_id).conversation()
    from orga.client.past.replayed_state import past_conversation  # it imports the workflows, to replay them

    messages = await past_conversation(here.client, run_id)
    if not messages:
        start = worker_command(await recorded_workplace(described))
        write_note(f"no worker has taken the run yet, so it has no messages; start one with: {start}")
    return messages


def message_lines(message: ShownMessage) -> list[str]:
    """Return a head and, indented below it, the message. A message's text can look like a head itself."""
    source = f" {full_field_text(message.tool)} {full_field_text(message.call_id or '')}" if message.tool else ""
    head = f"── {message.role}{source}{' (error)' if message.is_error else ''}"
    calls = [f"→ {on_one_line(call_summary(call, None))}  {full_field_text(call.call_id)}" for call in message.calls]
    return [head, *(indented_lines(message.text) if message.text else []), *calls]


def open_run(
    run: RunId,
    *,
    show: Annotated[bool, typer.Option("--print", help="Print the address and open nothing.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """The embedded server has a UI. If you use another server, set [notify] ui_url to the address of its UI. Without a
    terminal the command only prints the address.

    Example: orga open ID
    """
    return run_interruptible(_open(run, config, opens=not show and not json and sys.stdout.isatty(), as_json=json))


async def _open(named: str, config: Path | None, *, opens: bool, as_json: bool) -> int:
    async with run_context(named, config) as (here, run_id):
        await here.run(run_id).describe()  # reports an unknown id here, not in the browser
        link = here.connection.at_ui(here.loaded.config.notify.ui_url).link(run_id)
        if link is None:
            raise UsageError(_unknown_ui_text(here.connection.endpoint))
    if as_json:
        write_json({"id": run_id, "ui": link})
        return 0
    write_result(link)
    if opens and not _open_browser(link):
        write_note("no browser could be started here; open the address yourself")
    return 0


def _open_browser(link: str) -> bool:
    import webbrowser

    return webbrowser.open(link)


def _unknown_ui_text(server: Endpoint) -> str:
    return f"the address of the UI of the server at {server.address} is not configured. Set [notify] ui_url"
