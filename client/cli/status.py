"""`orga status`: where a run stands, by its own word or by its history."""

from dataclasses import replace
from pathlib import Path

from temporalio.client import WorkflowExecutionStatus

from orga.client.cli.history_status import history_status
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.outcome import outcome
from orga.client.cli.output import json_result, note, result
from orga.client.cli.session import Session, of_run
from orga.client.cli.status_lines import status_lines
from orga.client.cli.terminal_text import on_one_line
from orga.client.config.workplace import home_of, worker_command
from orga.client.errors import NoAnswer
from orga.client.journal.reading import read_journal
from orga.client.runs.failing_tasks import failing_task
from orga.client.server.pollers import may_be_polled
from orga.client.workers.routing import lacks_its_version, version_of
from orga.workflows.types.status import AgentStatus


def status(run: RunId, json: Json = False, config: ConfigFile = None) -> int:
    """Show where a run stands: phase, budgets, what waits for a person, open circuits, delegates, dead letters.

    Of one that has ended also its answer, whole.

    Only a worker can ask a run; without one, its history is read instead, and --json says so ("from": "history"). The
    same where its workflow task fails, so that no worker goes on with it: the cause and the way out are told then.

    Example: orga status ID --json
    """
    return completed(_status(run, config, as_json=json))


async def _status(named: str, config: Path | None, *, as_json: bool) -> int:
    async with of_run(named, config) as (here, run_id):
        described = await here.run(run_id).describe()
        failing, version = await failing_task(here.client, described), version_of(described)
        is_left = not failing and await lacks_its_version(here.client, described.task_queue, version)
        answer = None if failing or is_left else await _ask(here, run_id, described.task_queue)
        if answer is None:
            start = worker_command(await home_of(described))
            told = replace(await history_status(read_journal(here.client, run_id)), failing=failing)
            nobody = f"no worker of version {version.to_canonical_string()}" if is_left and version else "no worker"
            if described.status == WorkflowExecutionStatus.RUNNING:
                note(told.why or f"{nobody} answers, so this is what the history tells; start one with: {start}")
            shown, lines = told.shown(), told.lines()
        else:
            shown, lines = answer.model_dump(mode="json"), status_lines(run_id, answer)
        if version is not None:
            name = version.to_canonical_string()
            shown["version"] = name
            lines.insert(2, f"version    {on_one_line(name)}")
        came_of_it = await outcome(here.client, described)
    if as_json:
        json_result(shown | came_of_it.shown())
    else:
        result(*came_of_it.lines_around(lines))
    return 0


async def _ask(here: Session, run_id: str, task_queue: str) -> AgentStatus | None:
    if not await may_be_polled(here.client, task_queue):
        return None
    try:
        return await here.run(run_id).status()
    except NoAnswer:
        return None
