"""`orga audit ID`: what other policies would have said to all that past runs have proposed."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.policy.options import Surface, engine_of


def audit(
    run: Annotated[
        str | None, typer.Argument(metavar="ID", help="The run; or name many with --query.", show_default=False)
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
        Literal["allow", "default", "cedar", "opa"] | None,
        typer.Option(help="Judge by this engine of \\[policy].", show_default=False),
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
    from orga.client.cli.audit.work import Rejudge, Wanted, audit_runs, settings_of

    settings = settings_of(policy, surface, engine, config)
    wanted = Wanted(run, query, limit)
    return completed(audit_runs(wanted, Rejudge(engine_of(settings)), config, everything=everything, json=json))
