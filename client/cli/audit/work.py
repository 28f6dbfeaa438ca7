"""What `orga audit` does with the runs that it is given; it loads the policy engines, so commands import it late."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from temporalio.client import Client

from orga.activities.adapters.policy.ladder import EngineName, PolicySettings
from orga.client.cli.audit.table import as_json, summary, table
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.output import json_result, note, result
from orga.client.cli.policy.options import chosen
from orga.client.cli.progress_line import progress_line
from orga.client.cli.session import of_run, session
from orga.client.config.file import load_config
from orga.client.config.policy_settings import policy_settings
from orga.client.proof.audit import RunAudit, audited
from orga.client.proof.rejudged import Rejudge
from orga.client.runs.listing import Filter, rows


class Wanted:
    """Which runs."""

    def __init__(self, run: str | None, query: str | None, limit: int) -> None:
        self.is_named = run is not None
        self._run, self._query, self._limit = run, query, limit

    @asynccontextmanager
    async def found(self, config: Path | None) -> AsyncGenerator[tuple[Client, list[str]]]:
        """Begin as a command does, with their ids, each once; who asks for more than the limit is told."""
        if self._run is not None:
            async with of_run(self._run, config) as (here, run_id):
                yield here.client, [run_id]
            return
        async with session(config) as here:
            found = await rows(here.client, Filter(query=self._query), self._limit + 1)
            if len(found) > self._limit:
                only = f"more than {self._limit} runs, only the newest are judged; --limit raises it"
                note(f"orga: the query finds {only}")
            yield here.client, list(dict.fromkeys(row.id for row in found[: self._limit]))


def settings_of(
    folder: Path | None, surface: str | None, engine: EngineName | None, config: Path | None
) -> PolicySettings:
    """Return the policies to judge by."""
    if folder is not None and engine not in {None, "cedar"}:
        raise UsageError(f"--policy names Cedar files; --engine {engine} does not read them")
    if folder is not None or (engine is None and surface is not None):
        return chosen(folder, surface, config, dict(os.environ))
    try:
        settings = policy_settings(load_config(config).config.policy, os.environ)
    except ValueError as error:
        raise UsageError(str(error)) from None
    named = {name: value for name, value in (("engine", engine), ("surface", surface)) if value is not None}
    return replace(settings, **named)


async def audit_runs(wanted: Wanted, rejudge: Rejudge, config: Path | None, *, everything: bool, json: bool) -> int:
    """Judge the runs anew, show what would change, and return the exit code."""
    async with wanted.found(config) as (client, ids):
        found: list[RunAudit] = []
        with progress_line() as report:

            def told(step: str) -> None:
                report(f"{len(found):,} runs are done; {step}" if found else step)

            async for audit in audited(client, ids, rejudge, are_named=wanted.is_named, report=told):
                found.append(audit)
    if json:
        json_result(as_json(found, everything=everything))
    elif everything or not all(audit.is_same for audit in found):
        result(*table(found, everything=everything))
    note(*summary(found))
    return 0 if all(audit.is_same for audit in found) else ExitCode.FAILED
