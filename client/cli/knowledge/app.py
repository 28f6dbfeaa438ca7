"""`orga knowledge`: what agents remember from run to run, and what people tell them."""

import typer

from orga.client.cli.knowledge import export, forget, imports, search, upkeep

app = typer.Typer(
    no_args_is_help=True,
    help="Knowledge is what agents recall from run to run: add, find, import, export and forget it.",
    epilog="\\[knowledge] in orga.toml says where it is kept. docs/knowledge.md is the guide.",
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
