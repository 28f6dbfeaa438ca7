"""The `orga policy` commands: check, test and explain policies. Only commands that need an engine import it."""

import typer

from orga.client.cli.commands import LastRunCommand
from orga.client.cli.policy import check, explain
from orga.client.cli.shown.text import write_document

app = typer.Typer(
    no_args_is_help=True,
    epilog="The rules are Cedar files, by default in policies/ next to orga.toml. The guide is docs/policies.md.",
    rich_markup_mode="rich",
)


def schema() -> int:
    """Print the Cedar schema: everything that a policy can refer to.

    Example: orga policy schema > policies/orga.cedarschema
    """
    from orga.activities.adapters.policy.cedar_types import SCHEMA

    write_document(SCHEMA.rstrip())
    return 0


app.command("check")(check.check)
app.command("test")(explain.run_tests)
app.command("explain", cls=LastRunCommand)(explain.explain)
app.command("schema")(schema)
