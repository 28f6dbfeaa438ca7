"""`orga audit`: judge the proposals of past runs again, by other policies."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from temporalio.client import Client

from orga.activities.adapters.policy.engines import EngineName, PolicySettings
from orga.client.cli.commands import DefaultCommandGroup, LastRunCommand
from orga.client.cli.connection import cli_context, run_context
from orga.client.cli.exit_codes import ExitCode, UsageError, usage_errors
from orga.client.cli.inspect.journal import keygen
from orga.client.cli.live.screens import progress_line
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.policy.explain import Surface, build_policy_engine, chosen_policy_settings
from orga.client.cli.shown.text import count_text, terminal_line, write_json, write_note, write_result
from orga.client.config.file import load_config
from orga.client.config.policy import policy_settings
from orga.client.proof.audit import SAME, Rejudger, RunAudit, VerdictComparison, change_counts, run_audits
from orga.client.runs.listing import RunFilter, listed_runs
from orga.workflows.types.text import full_field_text

PROPOSAL_CHARS = 60
REASON_CHARS = 80
HEADINGS = ("RUN", "ITERATION", "PROPOSAL", "CHANGE", "DECIDED BY THEN", "DECIDED BY NOW", "REASON NOW")


def change_table(audits: Sequence[RunAudit], *, everything: bool) -> list[str]:
    """Return one line for each proposal whose verdict would change, or with `everything` for each proposal."""
    cells = [HEADINGS, *map(_cells, _selected_judgements(audits, everything=everything))]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def audit_json(audits: Sequence[RunAudit], *, everything: bool) -> dict[str, Any]:
    return {
        "runs": [audit.run for audit in audits],
        "counts": change_counts(audits),
        "not_rebuilt": [{"run": audit.run, "why": why} for audit in audits for why in audit.not_rebuilt],
        "breaches": [{"run": audit.run, "why": why} for audit in audits for why in audit.breaches],
        "judgements": [_judgement_json(judgement) for judgement in _selected_judgements(audits, everything=everything)],
    }


def audit_summary(audits: Sequence[RunAudit]) -> list[str]:
    """Return a line with counts, and a line for each part of a run that was not judged again or breaks a law."""
    counts = change_counts(audits)
    counts_text = ", ".join(f"{number} {change}" for change, number in counts.items()) or "nothing was proposed"
    problems = [
        f"{full_field_text(audit.run)}: {terminal_line(why, 600)}"
        for audit in audits
        for why in (*audit.not_rebuilt, *audit.breaches)
    ]
    proposals, runs = count_text(sum(counts.values()), "proposal"), count_text(len(audits), "run")
    return [f"{proposals} of {runs}: {counts_text}", *problems]


def _selected_judgements(audits: Sequence[RunAudit], *, everything: bool) -> list[VerdictComparison]:
    judgements = chain.from_iterable(audit.judgements for audit in audits)
    return [judgement for judgement in judgements if everything or judgement.change != SAME]


def _cells(judgement: VerdictComparison) -> tuple[str, ...]:
    about = [judgement.purpose] if judgement.purpose != "reply" else []
    about += [f"approved by {judgement.approved_by}"] if judgement.approved_by else []
    proposal = f"{judgement.tool} {judgement.arguments}" + (f" ({', '.join(about)})" if about else "")
    return (
        terminal_line(judgement.run),
        str(judgement.iteration),
        terminal_line(proposal, PROPOSAL_CHARS),
        judgement.change,
        terminal_line(", ".join(judgement.recorded.policies)) or "-",
        terminal_line(", ".join(judgement.now.policies)) or "-",
        terminal_line(judgement.now.reason, REASON_CHARS),
    )


def _judgement_json(judgement: VerdictComparison) -> dict[str, Any]:
    return {
        "run": judgement.run,
        "iteration": judgement.iteration,
        "purpose": judgement.purpose,
        "tool": judgement.tool,
        "call_id": judgement.call_id,
        "arguments": judgement.arguments,
        "approved_by": judgement.approved_by or None,
        "change": judgement.change,
        "recorded": judgement.recorded.model_dump(mode="json", exclude_defaults=True),
        "now": judgement.now.model_dump(mode="json", exclude_defaults=True),
    }


async def audit(
    run: Annotated[
        str | None, typer.Argument(metavar="ID", help="The run. --query selects many.", show_default=False)
    ] = None,
    *,
    query: Annotated[
        str | None, typer.Option(help="Judge all runs that this query finds, in Temporal's visibility query language.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number of runs of the query.")] = 1_000,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Judge by the *.cedar files in DIR. Default: \\[policy].", show_default=False),
    ] = None,
    surface: Surface = None,
    engine: Annotated[
        Literal["allow", "default", "cedar", "opa"] | None,
        typer.Option(help="Judge by this engine, with the settings of \\[policy].", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also show verdicts that would not change.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Judge every proposal of past runs by other policies, without running anything.

    Exit code 6 means that a verdict would change, or that something could not be judged again.

    Example: orga audit ID --policy policies-new

    Example: orga audit --query "OrgaAgent = 'reviewer' AND StartTime > '2026-01-01T00:00:00Z'" --policy policies-new
    """
    if (run is None) == (query is None):
        raise UsageError("ID: name either one run, or many with --query")
    rejudge = Rejudger(build_policy_engine(_audit_settings(policy, surface, engine, config)))
    audits: list[RunAudit] = []
    async with _selected_runs(run, query, limit, config) as (client, ids):
        with progress_line() as report:

            def report_step(step: str) -> None:
                report(f"{len(audits):,} runs are done; {step}" if audits else step)

            async for run_audit in run_audits(client, ids, rejudge, are_named=run is not None, report=report_step):
                audits.append(run_audit)
    is_same = all(run_audit.is_same for run_audit in audits)
    if json:
        write_json(audit_json(audits, everything=everything))
    elif everything or not is_same:
        write_result(*change_table(audits, everything=everything))
    write_note(*audit_summary(audits))
    return ExitCode.COMPLETED if is_same else ExitCode.FAILED


@asynccontextmanager
async def _selected_runs(
    run: str | None, query: str | None, limit: int, config: Path | None
) -> AsyncGenerator[tuple[Client, list[str]]]:
    """Connect, and yield the client and the ids of the runs, each once. A note appears if `limit` leaves some out."""
    if run is not None:
        async with run_context(run, config) as (context, run_id):
            yield context.client, [run_id]
        return
    async with cli_context(config) as context:
        rows = await listed_runs(context.client, RunFilter(query=query), limit + 1)
        if len(rows) > limit:
            write_note(f"orga: the query finds more than {limit} runs, so only the newest are judged. Raise --limit")
        yield context.client, list(dict.fromkeys(row.id for row in rows[:limit]))


def _audit_settings(
    folder: Path | None, surface: str | None, engine: EngineName | None, config: Path | None
) -> PolicySettings:
    if folder is not None and engine not in {None, "cedar"}:
        raise UsageError(f"--policy: names Cedar files, which --engine {engine} does not read. Give only one option")
    if folder is not None or (engine is None and surface is not None):
        return chosen_policy_settings(folder, surface, config, dict(os.environ))
    with usage_errors():
        settings = policy_settings(load_config(config).policy, os.environ)
    named = {name: value for name, value in (("engine", engine), ("surface", surface)) if value is not None}
    return replace(settings, **named)


class _AuditGroup(DefaultCommandGroup):
    default = "runs"


app = typer.Typer(cls=_AuditGroup, no_args_is_help=True)
app.command("runs", cls=LastRunCommand)(audit)
app.command("keygen")(keygen)
