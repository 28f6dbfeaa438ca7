"""`orga config`: what holds here, and where it comes from."""

import json as json_text
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.terminal_text import on_one_line
from orga.client.config.file import config_sources
from orga.client.config.problems import nearest

app = typer.Typer(
    no_args_is_help=True,
    help="The configuration that holds here: each value, and where it comes from.",
    epilog="orga init writes a first orga.toml; ORGA_SECTION__KEY variables win over the file.",
    rich_markup_mode="rich",
)

VALUE_CHARS = 60


@app.callback()
def _group() -> None:
    """Make `show` a command of a group although it is the only one."""


@app.command()
def show(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="A key or a section, as models or agents.default.")
    ] = None,
    *,
    changed: Annotated[bool, typer.Option("--changed", help="Only what somebody has set.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show each key with its value and where that comes from: file and line, variable, or default. Secrets are hidden.

    Nothing is started, and nothing has to be trusted for it.

    Example: orga config show models

    Example: orga config show --changed --json
    """
    from orga.client.config.origins import held_values

    sources = config_sources(config, folder=Path.cwd(), env=os.environ)
    known = held_values(sources, os.environ)
    found = [each for each in known if key is None or each.key == key or each.key.startswith(f"{key}.")]
    if not found:
        raise UsageError(f"no key {key!r}; {nearest(key or '', sorted({each.key.split('.')[0] for each in known}))}")
    found = [each for each in found if not (changed and each.is_default)]
    if json:
        json_result([asdict(each) for each in found])
        return 0
    names = [on_one_line(each.key, 80) for each in found]
    values = [on_one_line(json_text.dumps(each.value, ensure_ascii=False), VALUE_CHARS) for each in found]
    wide, wider = (max(map(len, column), default=0) for column in (names, values))
    for each, name, value in zip(found, names, values, strict=True):
        result(f"{name:<{wide}}  {value:<{wider}}  {each.origin}")
    note(f"orga.toml: {sources.path}" if sources.path else "no orga.toml here or above; orga init writes one")
    return 0
