"""`orga conversation`: the messages as the model would see them."""

from contextlib import suppress
from pathlib import Path

from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.output import json_result, note, result
from orga.client.cli.session import Session, of_run
from orga.client.cli.terminal_text import apart, below, on_one_line
from orga.client.config.workplace import home_of, worker_command
from orga.client.errors import NoAnswer
from orga.client.server.pollers import may_be_polled
from orga.workflows.decisions.result import call_summary
from orga.workflows.types.status import ShownMessage
from orga.workflows.types.text import in_full


def conversation(run: RunId, json: Json = False, config: ConfigFile = None) -> int:
    """Show what the model would see now: instructions, task, calls, results; no worker is needed.

    A worker is asked where one polls; else the run's history is replayed here.

    Example: orga conversation ID --json
    """
    return completed(_conversation(run, config, as_json=json))


async def _conversation(named: str, config: Path | None, *, as_json: bool) -> int:
    async with of_run(named, config) as (here, run_id):
        messages = await _messages(here, run_id)
    if as_json:
        json_result([message.model_dump(mode="json") for message in messages])
    elif messages:
        result(*apart(map(lines_of, messages)))
    return 0


async def _messages(here: Session, run_id: str) -> list[ShownMessage]:
    described = await here.run(run_id).describe()
    if await may_be_polled(here.client, described.task_queue):
        with suppress(NoAnswer):
            return await here.run(run_id).conversation()
    from orga.client.past.conversation import past_conversation  # with the code of workflows, to replay them

    messages = await past_conversation(here.client, run_id)
    if not messages:
        start = worker_command(await home_of(described))
        note(f"no worker has taken the run up yet, so nothing is said in it; start one with: {start}")
    return messages


def lines_of(message: ShownMessage) -> list[str]:
    """Return a head and, below it and never beside it, what was said: a text can hold what looks like a head."""
    source = f" {in_full(message.tool)} {in_full(message.call_id or '')}" if message.tool else ""
    head = f"── {message.role}{source}{' (error)' if message.is_error else ''}"
    calls = [f"→ {on_one_line(call_summary(call, None))}  {in_full(call.call_id)}" for call in message.calls]
    return [head, *(below(message.text) if message.text else []), *calls]
