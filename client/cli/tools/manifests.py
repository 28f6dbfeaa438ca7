"""`orga tools new` and `import-openapi`: write manifests from a template, or from an OpenAPI document."""

import asyncio
import json as json_format
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import (
    count_text,
    hanging_lines,
    terminal_line,
    write_document,
    write_json,
    write_note,
    write_result,
)
from orga.client.config.file import load_config

if TYPE_CHECKING:
    from orga.activities.adapters.http import URL
    from orga.activities.adapters.manifests.openapi import CannotExpress, OpenApi, Operation, WrittenTool

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
) -> None:
    """Write a commented manifest that works. An existing file is never overwritten.

    Example: orga tools new count_words
    """
    from orga.client.config.manifests import manifest_paths, read_manifests

    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r}: is not a valid tool name. Use letters, digits, _ and -, beginning with a letter")
    path = to or Path("tools") / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write((HTTP_MANIFEST if http else COMMAND_MANIFEST).replace("NAME", name))
    except FileExistsError:
        raise UsageError(f"{path}: already exists and was not changed. Name another file with --to") from None
    _, problems = read_manifests([path])
    write_result(str(path))
    for problem in problems:  # the template has none, but the name can be taken
        write_note(*hanging_lines("✗ ", str(problem)))
    if path.resolve() not in {known.resolve() for known in manifest_paths(load_config(config).tools.manifests)}:
        write_note(f'to give it to a worker: set [tools] manifests = ["{path.parent}/*.toml"] in orga.toml')
    write_note(f"to give it to an agent: list {name!r} in [agents.NAME] tools; to check it: orga tools check {path}")


_MAX_BYTES = 20_000_000
"""Bytes of an OpenAPI document."""

_MAX_UNCHOSEN = 20
"""Operations. A document with more needs `--only` or `--tag`."""

_FETCH_S = 30.0
"""Seconds to fetch a document."""

_LINE_CHARS = 300


async def import_openapi(
    source: Annotated[str, typer.Argument(metavar="FILE|URL", help="The document, JSON or YAML.", show_default=False)],
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="OPERATION",
            help="Take this operation: its operationId, or 'GET /path'; `*` matches any text. Repeat it for more.",
            show_default=False,
        ),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="NAME", help="Take the operations with this tag.", show_default=False),
    ] = None,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for the manifests.")] = Path("tools"),
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The server's address, instead of the document's.", show_default=False),
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Begin the tools' names with this.")] = "",
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="SCHEME=VARIABLE",
            help="Read a security scheme's secret from this environment variable of the worker.",
            show_default=False,
        ),
    ] = None,
    skip_refused: Annotated[
        bool, typer.Option("--skip-refused", help="Leave out operations that a manifest cannot express.")
    ] = False,
    show: Annotated[bool, typer.Option("--print", help="Write the manifests to stdout instead of files.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Write a tool manifest for each chosen operation of an OpenAPI document (3.0, 3.1).

    GET and HEAD become read-only tools, PUT and DELETE idempotent ones, all others irreversible. Existing files are
    never overwritten. Read the manifests before you use them: their descriptions come from the document.

    Example: orga tools import-openapi openapi.json --tag pets --print

    Example: orga tools import-openapi https://api.example.org/openapi.yaml --only getPet --only 'GET /stores/*'
    """
    if show and json:
        raise UsageError("--print: writes the manifests, which are TOML. Remove --json")
    from orga.activities.adapters.manifests.openapi import CannotExpress, OpenApi

    secrets = dict(map(_parse_secret, secret or ()))
    value, address = await _read_document(source)
    try:
        document = OpenApi(value, address, server=server or "", prefix=prefix)
        chosen = _chosen_operations(list(document.operations()), only or (), tag or ())
    except CannotExpress as error:
        raise UsageError(f"{source}{error}") from None
    tools, refused = _manifests_and_refusals(document, chosen, secrets)
    refusals = [terminal_line(f"{operation.key}: {source}{error}", 2 * _LINE_CHARS) for operation, error in refused]
    if refused and not skip_refused:
        remedy = "Nothing was written. Choose others with --only, or add --skip-refused"
        raise UsageError("\n".join([*refusals, remedy]))
    files = {to / f"{tool.name}.toml": tool for tool in tools}
    if show:
        write_document("\n".join(f"# {path}\n{tool.text}" for path, tool in files.items()).rstrip())
    else:
        _write_files(files)
    if json:
        write_json(_report_json(files, refused))
    elif not show:
        write_result(*map(str, files))
    for refusal in refusals:
        write_note(f"skipped: {refusal}")
    for tool in tools:
        for part in tool.left_out:
            write_note(f"{tool.name}: left out: {terminal_line(part, _LINE_CHARS)}")
    if variables := sorted({variable for tool in tools for variable in tool.secrets}):
        write_note(f"to set where the worker runs: {', '.join(variables)}")
    if files and not show:
        _write_hints(files, to, config)


def _parse_secret(text: str) -> tuple[str, str]:
    scheme, _, variable = text.rpartition("=")
    if not scheme or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise UsageError(f"--secret {text!r}: is no SCHEME=VARIABLE. Write it as in --secret api_key=SHOP_TOKEN")
    return scheme, variable


def _manifests_and_refusals(
    document: "OpenApi", chosen: "Sequence[Operation]", secrets: dict[str, str]
) -> "tuple[list[WrittenTool], list[tuple[Operation, CannotExpress]]]":
    """Return the manifests, and the operations that have none, each with the reason."""
    from orga.activities.adapters.manifests.openapi import CannotExpress
    from orga.activities.adapters.tools.catalog import builtin_specs

    tools: list[WrittenTool] = []
    refused: list[tuple[Operation, CannotExpress]] = []
    owners_by_name = dict.fromkeys(builtin_specs(), "a built-in tool")
    for operation in chosen:
        try:
            tool = document.tool(operation, secrets)
        except CannotExpress as error:
            refused.append((operation, error))
            continue
        if owner := owners_by_name.get(tool.name):
            why = f"the name {tool.name!r} is taken by {owner}; add --prefix TEXT"
            refused.append((operation, CannotExpress(operation.place, why)))
            continue
        owners_by_name[tool.name] = operation.key
        tools.append(tool)
    return tools, refused


def _chosen_operations(operations: "list[Operation]", only: Sequence[str], tags: Sequence[str]) -> "list[Operation]":
    def is_named(operation: "Operation", name: str) -> bool:
        method, space, path = name.partition(" ")
        key = f"{method.upper()}{space}{path}"
        return fnmatchcase(operation.key, key) or fnmatchcase(operation.operation_id, name)

    for name in only:
        if not any(is_named(operation, name) for operation in operations):
            raise UsageError(f"--only {name!r}: the document has no such operation. {_operations_hint(operations)}")
    for name in tags:
        if not any(name in operation.tags for operation in operations):
            raise UsageError(f"--tag {name!r}: no operation has this tag. {_operations_hint(operations)}")
    if not only and not tags:
        if len(operations) > _MAX_UNCHOSEN or not operations:
            raise UsageError(f"Choose operations with --only or --tag. {_operations_hint(operations)}")
        return operations
    return [
        operation
        for operation in operations
        if any(is_named(operation, name) for name in only) or any(name in operation.tags for name in tags)
    ]


def _operations_hint(operations: "Sequence[Operation]") -> str:
    tags = Counter(tag for operation in operations for tag in operation.tags)
    names = [operation.operation_id or operation.key for operation in operations[:5]]
    texts = [f"It has {count_text(len(operations), 'operation')}"]
    if tags:
        texts.append(f"Tags: {', '.join(f'{tag} ({count})' for tag, count in tags.most_common(20))}")
    if names:
        texts.append(f"Operations: {', '.join(names)}{', …' if len(operations) > len(names) else ''}")
    return terminal_line(". ".join(texts), 1_000)


def _report_json(
    files: "Mapping[Path, WrittenTool]", refused: "Sequence[tuple[Operation, CannotExpress]]"
) -> dict[str, Any]:
    return {
        "written": [
            {
                "operation": tool.operation.key,
                "name": tool.name,
                "file": str(path),
                "effect": tool.effect,
                "secrets": tool.secrets,
                "left_out": tool.left_out,
            }
            for path, tool in files.items()
        ],
        "refused": [
            {"operation": operation.key, "place": error.place.pointer, "problem": error.problem}
            for operation, error in refused
        ],
    }


def _write_files(files: "Mapping[Path, WrittenTool]") -> None:
    if existing := [path for path in files if path.is_symlink() or path.exists()]:
        raise UsageError(f"{existing[0]}: already exists. Nothing was written. Remove it, or add --prefix or --to")
    try:
        for path, tool in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(tool.text)
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written: {error.strerror}") from None


def _write_hints(files: "Mapping[Path, WrittenTool]", folder: Path, config: Path | None) -> None:
    from orga.client.config.manifests import manifest_paths

    known = {path.resolve() for path in manifest_paths(load_config(config).tools.manifests)}
    if any(path.resolve() not in known for path in files):
        write_note(f'to give them to a worker: set [tools] manifests = ["{folder}/*.toml"] in orga.toml')
    names = ", ".join(f'"{tool.name}"' for tool in files.values())
    write_note(f"to give them to an agent: list them in [agents.NAME] tools: {terminal_line(names, 1_000)}")


async def _read_document(source: str) -> tuple[Any, str]:
    """Return the document's content and its address, which is "" for a file. Raise UsageError if it cannot be read."""
    from orga.activities.adapters.yaml_text import read_yaml

    is_address = re.match(r"https?://", source) is not None
    data = await _fetch_document(source) if is_address else await asyncio.to_thread(_read_file, source)
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{source}: has more than {_MAX_BYTES:,} bytes. Name a smaller document")
    try:
        value = json_format.loads(data) if data.lstrip()[:1] == b"{" else await read_yaml(data)
    except (ValueError, RecursionError):
        try:
            value = await read_yaml(data)  # YAML may begin with a brace, too
        except ValueError as error:
            raise UsageError(f"{source}: cannot be read: {error}. Name an OpenAPI document, JSON or YAML") from None
    return value, source if is_address else ""


def _read_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror}. Name a file, or an address with http(s)://"
        ) from None


async def _fetch_document(source: str) -> bytes:
    """Fetch an address, even in a private network. Redirects may lead to the same host or to public addresses."""
    from orga.activities.adapters.http import ACCEPTED_ENCODINGS, URL, HTTPError, InvalidURL
    from orga.activities.adapters.tools.guarded_http import PublicBackend, bounded_body, final_response, guarded_client
    from orga.activities.ports import ToolError

    headers = {"user-agent": "orga/0.1", "accept-encoding": ACCEPTED_ENCODINGS}

    def redirect_target(url: "URL", location: str) -> "URL":
        return url.join(location)

    try:
        url = URL(source)
        async with (
            asyncio.timeout(_FETCH_S),
            guarded_client(PublicBackend([url.host])) as client,
            final_response(url, lambda url: client.stream("GET", url, headers=headers), redirect_target) as response,
        ):
            if not response.is_success:
                raise UsageError(
                    f"{source}: answered {response.status_code} {response.reason_phrase}. Check the address"
                )
            body, _ = await bounded_body(response, _MAX_BYTES + 1)
            return body
    except (ToolError, HTTPError, InvalidURL, UnicodeError, TimeoutError) as error:
        raise UsageError(
            f"{source}: cannot be fetched: {str(error) or type(error).__name__}. Check the address"
        ) from None
