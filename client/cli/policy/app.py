"""`orga policy`: check, test and explain policies. What knows an engine is imported by the command that needs it."""

import typer

from orga.client.cli.commands import LastRunCommand
from orga.client.cli.policy import check, explain
from orga.client.cli.shown.text import write_document

app = typer.Typer(
    no_args_is_help=True,
    help="Policies decide what agents may do: check them, test them, see why a call was denied.",
    epilog="The rules are Cedar files, by default in policies/ beside orga.toml. docs/policies.md is the guide.",
    rich_markup_mode="rich",
)


def schema() -> int:
    """Print the Cedar schema: all that a policy can speak of.

    Example: orga policy schema > policies/orga.cedarschema
    """
    from orga.activities.adapters.policy.cedar_types import SCHEMA

    write_document(SCHEMA.rstrip())
    return 0


app.command("check")(check.check)
app.command("test")(explain.run_tests)
app.command("explain", cls=LastRunCommand)(explain.explain)
app.command("schema")(schema)
