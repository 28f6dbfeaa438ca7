"""`orga tools new`: a manifest to begin with."""

import re
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import ConfigFile
from orga.client.cli.output import note, result
from orga.client.cli.terminal_text import behind
from orga.client.cli.tools.templates import COMMAND, HTTP
from orga.client.config.file import load_config

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the tool.", show_default=False)],
    *,
    http: Annotated[bool, typer.Option("--http/--command", help="A request, or a command.")] = False,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where; tools/NAME.toml without.", show_default=False)
    ] = None,
    config: ConfigFile = None,
) -> int:
    """Write a commented manifest that works. A file that is there is left as it is.

    Example: orga tools new count_words
    """
    from orga.client.config.manifests import manifest_paths, read_manifests

    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a tool; use letters, digits, _ and -, a letter first")
    path = to or Path("tools") / f"{name}.toml"
    _write(path, (HTTP if http else COMMAND).replace("NAME", name))
    _, problems = read_manifests([path])
    result(str(path))
    for problem in problems:  # a name that is taken
        note(*behind("✗ ", str(problem)))
    if path.resolve() not in {known.resolve() for known in manifest_paths(load_config(config).config.tools.manifests)}:
        note(f'to give it to a worker: [tools] manifests = ["{path.parent}/*.toml"] in orga.toml')
    note(f"to give it to an agent: list {name!r} in [agents.NAME] tools; to look it over: orga tools check {path}")
    return 0


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and stays as it is; name another with --to") from None
