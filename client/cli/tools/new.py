"""`orga tools new`: write a first manifest from a template."""

import re
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import ConfigFile
from orga.client.cli.shown.text import hanging_lines, write_note, write_result
from orga.client.config.file import load_config

COMMAND_MANIFEST = """\
# A tool that runs one command. docs/tool-manifests.md describes all keys.
name = "NAME"
description = "Count the words of a file. Tell the model here all it needs to use the tool well."
effect = "read_only"      # read_only, idempotent or irreversible (the default)
timeout_s = 30
# approval = true         # a person approves each call
# verified = true         # you vouch for it (require_verified of tool profiles)
# tags = ["text"]         # words that policies can refer to

[arguments.file]
type = "path"             # under the root, no `..`
description = "The file."
must_exist = true

[arguments.what]
type = "enum"
allowed = ["--words", "--lines", "--bytes"]
default = "--words"
allow_dash = true         # these are flags on purpose; other values that begin with a dash are refused
description = "What to count."

[command]
argv = ["wc", "{what}", "--", "{file}"]   # each text is one argument, whatever its value; no shell reads it
# { when = "limit", argv = ["--limit", "{limit}"] } is used only if the argument has a value
# env_from = ["API_TOKEN"]                # from the worker's environment, hidden from results

# [command.sandbox]
# isolation = "bubblewrap"                # it can write only to the root, and has no network
# limits = { cpu_s = 10, memory_bytes = 500_000_000 }

# [output]
# parser = "regex"                        # text, json, lines or regex
# pattern = '(?P<count>\\d+)'
"""

HTTP_MANIFEST = """\
# A tool that sends one HTTP request. docs/tool-manifests.md describes all keys.
name = "NAME"
description = "Look up a package. Tell the model here all it needs to use the tool well."
effect = "read_only"      # read_only, idempotent or irreversible (the default)
timeout_s = 20
# approval = true         # a person approves each call

[arguments.name]
type = "string"
description = "Name of the package."
pattern = "[a-z0-9][a-z0-9._-]*"
max = 100

[arguments.limit]
type = "integer"
min = 1
max = 50
required = false

[http]
method = "GET"
url = "https://api.example.org/packages/{name}"   # values are encoded, so none can change host or path
query = { limit = "{limit}" }                     # omitted if the argument has no value
# headers = { Authorization = "Bearer {secret:API_TOKEN}" }   # from the worker's environment, hidden from results
# json = { name = "{name}" }                      # a body: json, form or text; set method = "POST"

# [output]
# parser = "json"
# strict = true                                   # output that does not fit is an error
# schema = { type = "object", required = ["name"] }

# [options]                                       # as [tools.options.NAME] of orga.toml
# max_attempts = 3
# breaker = { failure_threshold = 5 }
"""


_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.", show_default=False)],
    *,
    http: Annotated[bool, typer.Option("--http/--command", help="A tool that sends a request, or runs a command.")] = (
        False
    ),
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file to write. Default: tools/NAME.toml.", show_default=False),
    ] = None,
    config: ConfigFile = None,
) -> int:
    """Write a commented manifest that works. An existing file is never overwritten.

    Example: orga tools new count_words
    """
    from orga.client.config.manifests import manifest_paths, read_manifests

    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r}: is not a valid tool name. Use letters, digits, _ and -, beginning with a letter")
    path = to or Path("tools") / f"{name}.toml"
    _write_new_file(path, (HTTP_MANIFEST if http else COMMAND_MANIFEST).replace("NAME", name))
    _, problems = read_manifests([path])
    write_result(str(path))
    for problem in problems:  # a name that is taken
        write_note(*hanging_lines("✗ ", str(problem)))
    if path.resolve() not in {known.resolve() for known in manifest_paths(load_config(config).config.tools.manifests)}:
        write_note(f'to give it to a worker: set [tools] manifests = ["{path.parent}/*.toml"] in orga.toml')
    write_note(f"to give it to an agent: list {name!r} in [agents.NAME] tools; to check it: orga tools check {path}")
    return 0


def _write_new_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path}: already exists and was not changed. Name another file with --to") from None
