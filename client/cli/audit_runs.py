"""`orga audit ID`: what other policies would have said to all that past runs have proposed."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client

from activities.adapters.policy.ladder import EngineName, PolicySettings
from client.audit import RunAudit, audited
from client.cli.audit_table import as_json, summary, table
from client.cli.exit_codes import ExitCode, UsageError
from client.cli.interrupts import completed
from client.cli.options import ConfigFile, Json
from client.cli.output import json_result, note, result
from client.cli.policy_options import Surface, chosen, engine_of
from client.cli.run_rows import Filter, rows
from client.cli.session import session
from client.config_file import load_config
from client.policy_settings import policy_settings
from client.rejudged import Rejudge

PROGRESS_S = 5.0


def audit(
    run: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The run; or name many with --query.", show_default=False)
    ] = None,
    *,
    query: Annotated[
        str | None, typer.Option(help="All runs that this finds, in Temporal's visibility query language.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many runs of the query.")] = 1_000,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Judge by the *.cedar files in DIR; else as \\[policy] says.", show_default=False
        ),
    ] = None,
    surface: Surface = None,
    engine: Annotated[
        EngineName | None, typer.Option(help="Judge by this engine of \\[policy].", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show what would stay as it was, too.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Judge every proposal that past runs have made under other policies, without running anything.

    Exit code 6 when something would be decided otherwise, or could not be judged anew.

    Example: orga audit ID --policy policies-new

    Example: orga audit --query "OrgaAgent = 'reviewer' AND StartTime > '2026-01-01T00:00:00Z'" --policy policies-new
    """
    if (run is None) == (query is None):
        raise UsageError("name one run, or many with --query")
    settings = _settings(policy, surface, engine, config)
    wanted = Wanted(run, query, limit)
    return completed(_audited(wanted, Rejudge(engine_of(settings)), config, everything=everything, json=json))


class Wanted:
    """Which runs."""

    def __init__(self, run: str | None, query: str | None, limit: int) -> None:
        self._run, self._query, self._limit = run, query, limit

    async def ids(self, client: Client) -> list[str]:
        """Return their ids, each once."""
        if self._run is not None:
            return [self._run]
        found = await rows(client, Filter(query=self._query), self._limit)
        return list(dict.fromkeys(row.id for row in found))


def _settings(
    folder: Path | None, surface: str | None, engine: EngineName | None, config: Path | None
) -> PolicySettings:
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


async def _audited(wanted: Wanted, rejudge: Rejudge, config: Path | None, *, everything: bool, json: bool) -> int:
    async with session(config) as here:
        ids = await wanted.ids(here.client)
        found: list[RunAudit] = []
        told = time.monotonic()
        async for audit in audited(here.client, ids, rejudge):
            found.append(audit)
            if time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                note(f"… {len(found)} runs; {summary(found).splitlines()[0]}")
    if json:
        json_result(as_json(found, everything=everything))
    elif everything or not all(audit.is_same for audit in found):
        result(table(found, everything=everything))
    note(summary(found))
    return 0 if all(audit.is_same for audit in found) else ExitCode.FAILED
