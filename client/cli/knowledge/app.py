"""The `orga knowledge` commands: what agents recall from run to run."""

import typer

from orga.client.cli.knowledge import export, forget, imports, search, upkeep

app = typer.Typer(
    no_args_is_help=True,
    help="Manage the knowledge that agents recall from run to run: add, search, import, export, forget.",
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
app.command("stats")(upkeep.stats)
app.command("reindex")(upkeep.reindex)
