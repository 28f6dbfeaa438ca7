"""`orga journal ID --markdown|--html`: the report of a run, live or ended, on stdout."""

from collections.abc import Callable
from pathlib import Path

from temporalio.client import WorkflowExecutionStatus

from orga.client.cli.output import document
from orga.client.cli.report.collected import RunReport, collected
from orga.client.cli.session import of_run
from orga.client.errors import RunFailed
from orga.client.journal.reading import read_journal


async def report(named: str, form: Callable[[RunReport], str], config: Path | None) -> int:
    """Write the report; no worker is needed."""
    async with of_run(named, config) as (here, run_id):
        entries = [entry async for entry in read_journal(here.client, run_id)]
        result, ended, run = None, "", here.run(run_id)
        if (await run.describe()).status != WorkflowExecutionStatus.RUNNING:
            try:
                result = await run.result()
            except RunFailed as error:
                ended = f"failed: {error}"
    document(form(collected(run_id, entries, result, ended)).removesuffix("\n"))
    return 0
