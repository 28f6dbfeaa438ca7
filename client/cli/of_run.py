"""A command that is about one run, which `--last` names in place of its id."""

from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

NEWEST = "\0newest"
"""In place of an id: what `--last` stands for. Nobody can type it."""

ARGUMENT = "run"
"""What the argument is called that takes a run."""

OPTION = "--last"


class OfRun(TyperCommand):
    """Takes `--last` where it takes a run; other commands are left as they are."""

    def __init__(self, *arguments: Any, **extra: Any) -> None:
        super().__init__(*arguments, **extra)
        places = [at for at, each in enumerate(self.params) if isinstance(each, TyperArgument)]
        self._takes_run = any(self.params[at].name == ARGUMENT for at in places)
        if self._takes_run:
            self.params.insert(max(places) + 1, _option(_HELP_OF.get(str(self.name), _HELP)))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the newest run in the place of the ID, which comes first."""
        if self._takes_run and OPTION in args:
            given, _, _ = self.make_parser(ctx).parse_args(args=[*args])
            args = [NEWEST, *args] if given.get(_NAME) else args
        return super().parse_args(ctx, args)


_NAME = "last"


_HELP = "In place of ID: the newest run of this folder."

_HELP_OF = {"chat": "In place of ID: the newest session of this folder that has not ended."}
"""Of the command that takes another run for it."""


def _option(told: str) -> Any:
    def declared(last: Annotated[bool, typer.Option(OPTION, help=told)] = False) -> None: ...

    alone = typer.Typer(add_completion=False)
    alone.command()(declared)
    [option] = typer.main.get_command(alone).params
    option.expose_value = False
    return option
