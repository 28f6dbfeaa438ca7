"""`orga status`: where a run stands, by its own word or by its history."""

from pathlib import Path

from client.cli.history_status import history_status
from client.cli.interrupts import completed
from client.cli.options import ConfigFile, Json, RunId
from client.cli.output import json_result, note, result
from client.cli.session import Session, session
from client.cli.status_lines import status_lines
from client.errors import NoAnswer
from client.journal import read_journal
from client.pollers import pollers
from workflows.types.status import AgentStatus


def status(run: RunId, json: Json = False, config: ConfigFile = None) -> int:
    """Show where a run stands: phase, budgets, what waits for a person, open circuits, delegates, dead letters.

    Only a worker can ask a run; without one, its history is read instead, and --json says so ("from": "history").

    Example: orga status ID --json
    """
    return completed(_status(run, config, as_json=json))


async def _status(run_id: str, config: Path | None, *, as_json: bool) -> int:
    async with session(config) as here:
        described = await here.run(run_id).describe()
        answer = await _asked(here, run_id, described.task_queue)
        if answer is None:
            note("no worker answers, so this is what the history tells; start one with: orga worker")
            told = await history_status(read_journal(here.client, run_id))
            shown, lines = told.shown(), told.lines()
        else:
            shown, lines = answer.model_dump(mode="json"), status_lines(run_id, answer)
    if as_json:
        json_result(shown)
    else:
        result("\n".join(lines))
    return 0


async def _asked(here: Session, run_id: str, task_queue: str) -> AgentStatus | None:
    if not await pollers(here.client, task_queue):
        return None
    try:
        return await here.run(run_id).status()
    except NoAnswer:
        return None
