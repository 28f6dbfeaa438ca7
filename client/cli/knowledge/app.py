"""The `orga knowledge` commands: what agents recall from run to run, its counts and its indexes."""

from dataclasses import asdict
from pathlib import Path

import typer

from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.knowledge import export, forget, imports, search
from orga.client.cli.knowledge.opened import kind_counts_text, open_store
from orga.client.cli.live.terminal import progress_line
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.workflows.types.text import full_field_text


def stats(*, json: Json = False, config: ConfigFile = None) -> int:
    """Show where knowledge is stored, and count its items: by kind, expired, contradicted, tainted and not indexed.

    Example: orga knowledge stats
    """
    return run_interruptible(_stats(config, as_json=json))


def reindex(*, json: Json = False, config: ConfigFile = None) -> int:
    """Rebuild the text index and the vectors with the embedder that is configured now.

    If it is stopped, the same command continues.

    Example: orga knowledge reindex
    """
    return run_interruptible(_reindex(config, as_json=json))


async def _stats(config: Path | None, *, as_json: bool) -> int:
    async with open_store(config) as here:
        facts = await here.store.facts()
    if as_json:
        write_json(asdict(facts))
        return 0
    write_result(
        f"{facts.backend}  {full_field_text(facts.place)}  {facts.size_bytes:,} bytes, schema {facts.schema_version}",
        f"holds     {kind_counts_text(facts.counts)}",
        f"of these  {facts.expired:,} expired, {facts.contradicted:,} contradicted, {facts.tainted:,} tainted",
        f"embedder  {full_field_text(facts.embedder)}",
    )
    if facts.unindexed:
        write_note(
            f"{facts.unindexed:,} items have no vectors of the configured embedder, so only their words are searched; "
            "to index them: orga knowledge reindex"
        )
    if facts.expired:
        write_note("expired items are not recalled; to erase them: orga knowledge forget --expired")
    return 0


async def _reindex(config: Path | None, *, as_json: bool) -> int:
    async with open_store(config) as here:
        with progress_line() as report:
            done = await here.store.reindex(lambda done, of: report(f"{done:,} of {of:,} items are indexed"))
    if as_json:
        write_json({"indexed": done})
    else:
        write_result(f"{done:,} items got new vectors; the text index is new" if done else "the indexes are up to date")
    return 0


app = typer.Typer(
    no_args_is_help=True,
    epilog="\\[knowledge] in orga.toml sets where it is stored. The guide is docs/knowledge.md.",
    rich_markup_mode="rich",
)

app.command("add")(imports.add)
app.command("search")(search.search)
app.command("show")(search.show)
app.command("forget")(forget.forget)
app.command("import")(imports.import_)
app.command("import-conventions")(imports.import_project_conventions)
app.command("export")(export.export)
app.command("stats")(stats)
app.command("reindex")(reindex)
