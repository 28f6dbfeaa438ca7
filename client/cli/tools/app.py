"""The `orga tools` commands: list, declare, check and try a worker's tools, and log in to MCP servers."""

import typer

from orga.client.cli.tools import call, listing, login, new, openapi

app = typer.Typer(
    no_args_is_help=True,
    epilog="A manifest declares one command or one HTTP request. The guide is docs/tool-manifests.md.",
    rich_markup_mode="rich",
)

app.command("list")(listing.list_tools)
app.command("new")(new.new)
app.command("import-openapi")(openapi.import_openapi)
app.command("check")(listing.check)
app.command("call")(call.call)
app.command("pin")(listing.pin)
app.command("login")(login.log_in_to_server)
