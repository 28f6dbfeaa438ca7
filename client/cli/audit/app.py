"""`orga audit`: past runs under other policies, and the keys of exported journals."""

from typing import Any

import typer
from typer.core import TyperGroup

from orga.client.cli.audit import keys, runs
from orga.client.cli.of_run import OfRun

RUNS = "runs"


class _RunsUnlessNamed(TyperGroup):
    """Takes `orga audit ID` for `orga audit runs ID`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = [RUNS, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunsUnlessNamed,
    no_args_is_help=True,
    help="What other policies would have said to all that past runs have proposed; keys for exported journals.",
)
app.command(RUNS, cls=OfRun)(runs.audit)
app.command("keygen")(keys.keygen)
