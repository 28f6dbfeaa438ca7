"""`orga journal`: what a run saw, proposed, was allowed and did."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.exported_journal import checked, written
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.output import json_result, note, result
from orga.client.cli.report.html import html
from orga.client.cli.report.markdown import markdown
from orga.client.cli.report.written import report
from orga.client.cli.session import of_run
from orga.client.cli.timeline import Timeline
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from orga.workflows.decisions.journal_entries import first_break
from orga.workflows.types.status import JournalEntry


def journal(
    run: RunId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new entries until the run ends.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check the chain of hashes; exit 6 if it breaks.")] = False,
    exported: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check this export against the run, line by line.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the entries and their head to FILE.")
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="A report to read and to send, as Markdown.")] = False,
    as_html: Annotated[
        bool, typer.Option("--html", help="The same as one HTML page, which loads nothing and runs nothing.")
    ] = False,
    sign: Annotated[bool, typer.Option("--sign", help="Sign the head; orga audit keygen makes the key.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show the journal of a run, live or ended; no worker is needed.

    With --json one object a line: sequence, timestamp, agent, iteration, event, data, hash.

    Example: orga journal ID --html > report.html

    Example: orga journal ID --export run.jsonl --sign

    Example: orga journal ID --exported run.jsonl
    """
    if as_markdown or as_html:
        others = (follow, verify, json, sign, exported is not None, export is not None, as_markdown and as_html)
        if any(others):
            raise UsageError("--markdown or --html makes a report, and goes with no other option")
        return completed(report(run, html if as_html else markdown, config))
    if sign and export is None:
        raise UsageError("--sign signs an export: name its file with --export FILE")
    if export is not None:
        if follow or verify or json or exported is not None:
            raise UsageError("--export goes with --sign alone; orga verify ID --journal FILE checks what it wrote")
        return completed(written(run, export, config, sign=sign))
    if exported is not None:
        return completed(checked(run, exported, config))
    return completed(_journal(run, config, waiting=follow, verify=verify, as_json=json))


async def _journal(named: str, config: Path | None, *, waiting: bool, verify: bool, as_json: bool) -> int:
    async with of_run(named, config) as (here, run_id):
        entries = _followed(here.run(run_id)) if waiting else read_journal(here.client, run_id)
        return await _write(entries, verify=verify, as_json=as_json)


async def _followed(run: AgentHandle) -> AsyncIterator[JournalEntry]:
    async for event in run.events():
        if isinstance(event, JournalEntry):
            yield event


async def _write(entries: AsyncIterator[JournalEntry], *, verify: bool, as_json: bool) -> int:
    timeline, seen = Timeline(), list[JournalEntry]()
    async for entry in entries:
        if as_json:
            json_result(entry.model_dump(mode="json"), indent=None)
        else:
            result(*timeline.lines(entry))
        if verify:
            seen.append(entry)
    return _verified(seen) if verify else 0


def _verified(entries: list[JournalEntry]) -> int:
    broken = first_break(entries)
    if broken is not None:
        note(f"✗ the chain breaks at entry {broken}: it or one before it was changed")
        return ExitCode.FAILED
    note(f"✓ the chain of {len(entries)} entries holds; last hash {entries[-1].hash if entries else 'none'}")
    return 0
