"""`orga tools`: list, declare, check and try the tools of a worker."""

import typer

from orga.client.cli import tools_call, tools_check, tools_list, tools_new, tools_pin

app = typer.Typer(
    no_args_is_help=True,
    help="Tools are what agents act with: list them, declare new ones in TOML, check them, try one.",
    epilog="A manifest declares one command or one HTTP request. docs/tool-manifests.md is the guide.",
    rich_markup_mode="rich",
)

app.command("list")(tools_list.list_tools)
app.command("new")(tools_new.new)
app.command("check")(tools_check.check)
app.command("call")(tools_call.call)
app.command("pin")(tools_pin.pin)
