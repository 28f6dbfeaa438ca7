"""`orga tools import-openapi`: write a manifest for each chosen operation of an OpenAPI document."""

import asyncio
import json as json_format
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import count_text, on_one_line, write_document, write_json, write_note, write_result
from orga.client.config.file import load_config

if TYPE_CHECKING:
    from orga.activities.adapters.http import URL
    from orga.activities.adapters.manifests.openapi import CannotExpress, OpenApi, Operation, WrittenTool

_MAX_BYTES = 20_000_000
_MAX_UNCHOSEN = 20
"""Operations of a document that are all taken if the command chooses none."""

_FETCH_S = 30.0
_LINE_CHARS = 300


@dataclass(frozen=True)
class _ImportRequest:
    source: str
    only: tuple[str, ...]
    tags: tuple[str, ...]
    folder: Path
    server: str
    prefix: str
    secrets: dict[str, str]
    skips_refused: bool
    shows: bool


def import_openapi(
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
        bool, typer.Option("--skip-refused", help="Write the others if a manifest cannot express some operations.")
    ] = False,
    show: Annotated[bool, typer.Option("--print", help="Write the manifests to stdout instead of files.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Write a tool manifest for each chosen operation of an OpenAPI document (3.0, 3.1).

    GET and HEAD become read-only tools, PUT and DELETE idempotent ones, all others irreversible. Existing files are
    never overwritten. Read the manifests before you use them: their descriptions come from the document.

    Example: orga tools import-openapi openapi.json --tag pets --print

    Example: orga tools import-openapi https://api.example.org/openapi.yaml --only getPet --only 'GET /stores/*'
    """
    if show and json:
        raise UsageError("--print: writes the manifests, which are TOML. Remove --json")
    request = _ImportRequest(
        source=source,
        only=tuple(only or ()),
        tags=tuple(tag or ()),
        folder=to,
        server=server or "",
        prefix=prefix,
        secrets=dict(map(_parse_secret, secret or ())),
        skips_refused=skip_refused,
        shows=show,
    )
    return run_interruptible(_import(request, config, as_json=json))


def _parse_secret(text: str) -> tuple[str, str]:
    scheme, _, variable = text.rpartition("=")
    if not scheme or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise UsageError(f"--secret {text!r}: is no SCHEME=VARIABLE. Write it as in --secret api_key=SHOP_TOKEN")
    return scheme, variable


async def _import(request: _ImportRequest, config: Path | None, *, as_json: bool) -> int:
    from orga.activities.adapters.manifests.openapi import CannotExpress, OpenApi

    value, address = await _read_document(request.source)
    try:
        document = OpenApi(value, address, server=request.server, prefix=request.prefix)
        chosen = _chosen_operations(list(document.operations()), request)
    except CannotExpress as error:
        raise UsageError(f"{request.source}{error}") from None
    tools, refused = _written_tools(document, chosen, request)
    if refused and not request.skips_refused:
        lines = [_refusal_text(request, operation, error) for operation, error in refused]
        remedy = "Nothing was written. Choose others with --only, or add --skip-refused"
        raise UsageError("\n".join([*lines, remedy]))
    if request.shows:
        write_document("\n".join(f"# {request.folder / f'{tool.name}.toml'}\n{tool.text}" for tool in tools).rstrip())
    else:
        _write_files(request.folder, tools)
    if as_json:
        write_json(_report_json(request, tools, refused))
    elif not request.shows:
        write_result(*(str(request.folder / f"{tool.name}.toml") for tool in tools))
    for operation, error in refused:
        write_note(f"skipped: {_refusal_text(request, operation, error)}")
    _write_hints(request, tools, config)
    return 0


def _written_tools(
    document: "OpenApi", chosen: "Sequence[Operation]", request: _ImportRequest
) -> "tuple[list[WrittenTool], list[tuple[Operation, CannotExpress]]]":
    from orga.activities.adapters.manifests.openapi import CannotExpress
    from orga.activities.adapters.tools.catalog import builtin_specs

    tools: list[WrittenTool] = []
    refused: list[tuple[Operation, CannotExpress]] = []
    taken = dict.fromkeys(builtin_specs(), "a built-in tool")
    for operation in chosen:
        try:
            tool = document.tool(operation, request.secrets)
        except CannotExpress as error:
            refused.append((operation, error))
            continue
        if other := taken.get(tool.name):
            why = f"the name {tool.name!r} is taken by {other}; add --prefix TEXT"
            refused.append((operation, CannotExpress(operation.place, why)))
            continue
        taken[tool.name] = operation.key
        tools.append(tool)
    return tools, refused


def _chosen_operations(operations: "list[Operation]", request: _ImportRequest) -> "list[Operation]":
    def is_named(operation: "Operation", name: str) -> bool:
        method, space, path = name.partition(" ")
        key = f"{method.upper()}{space}{path}"
        return fnmatchcase(operation.key, key) or fnmatchcase(operation.operation_id, name)

    for name in request.only:
        if not any(is_named(operation, name) for operation in operations):
            raise UsageError(f"--only {name!r}: the document has no such operation. {_operations_hint(operations)}")
    for name in request.tags:
        if not any(name in operation.tags for operation in operations):
            raise UsageError(f"--tag {name!r}: no operation has this tag. {_operations_hint(operations)}")
    if not request.only and not request.tags:
        if len(operations) > _MAX_UNCHOSEN or not operations:
            raise UsageError(f"Choose operations with --only or --tag. {_operations_hint(operations)}")
        return operations
    return [
        operation
        for operation in operations
        if any(is_named(operation, name) for name in request.only)
        or any(name in operation.tags for name in request.tags)
    ]


def _operations_hint(operations: "Sequence[Operation]") -> str:
    tags = Counter(tag for operation in operations for tag in operation.tags)
    names = [operation.operation_id or operation.key for operation in operations[:5]]
    shown = [f"Tags: {', '.join(f'{tag} ({count})' for tag, count in tags.most_common(20))}"] if tags else []
    shown += [f"Operations: {', '.join(names)}{', …' if len(operations) > len(names) else ''}"] if names else []
    return on_one_line(". ".join([f"It has {count_text(len(operations), 'operation')}", *shown]), 1_000)


def _refusal_text(request: _ImportRequest, operation: "Operation", error: "CannotExpress") -> str:
    return on_one_line(f"{operation.key}: {request.source}{error}", _LINE_CHARS * 2)


def _report_json(
    request: _ImportRequest, tools: "Sequence[WrittenTool]", refused: "Sequence[tuple[Operation, CannotExpress]]"
) -> dict[str, Any]:
    return {
        "written": [
            {
                "operation": tool.operation.key,
                "name": tool.name,
                "file": str(request.folder / f"{tool.name}.toml"),
                "effect": tool.effect,
                "secrets": tool.secrets,
                "left_out": tool.left_out,
            }
            for tool in tools
        ],
        "refused": [
            {"operation": operation.key, "place": error.place.pointer, "problem": error.problem}
            for operation, error in refused
        ],
    }


def _write_files(folder: Path, tools: "Sequence[WrittenTool]") -> None:
    files = {folder / f"{tool.name}.toml": tool.text for tool in tools}
    if there := [path for path in files if path.is_symlink() or path.exists()]:
        raise UsageError(f"{there[0]}: already exists. Nothing was written. Remove it, or add --prefix or --to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written: {error.strerror}") from None


def _write_hints(request: _ImportRequest, tools: "Sequence[WrittenTool]", config: Path | None) -> None:
    from orga.client.config.manifests import manifest_paths

    for tool in tools:
        for part in tool.left_out:
            write_note(f"{tool.name}: left out: {on_one_line(part, _LINE_CHARS)}")
    if variables := sorted({variable for tool in tools for variable in tool.secrets}):
        write_note(f"to set where the worker runs: {', '.join(variables)}")
    if request.shows or not tools:
        return
    known = {path.resolve() for path in manifest_paths(load_config(config).config.tools.manifests)}
    if any((request.folder / f"{tool.name}.toml").resolve() not in known for tool in tools):
        write_note(f'to give them to a worker: set [tools] manifests = ["{request.folder}/*.toml"] in orga.toml')
    names = ", ".join(f'"{tool.name}"' for tool in tools)
    write_note(f"to give them to an agent: list them in [agents.NAME] tools: {on_one_line(names, 1_000)}")


async def _read_document(source: str) -> tuple[Any, str]:
    """Return the document's values and its address, "" for a file. Raise UsageError if it cannot be read."""
    from orga.activities.adapters.yaml_text import read_yaml

    is_address = re.match(r"https?://", source) is not None
    data = await _fetched(source) if is_address else await asyncio.to_thread(_read_file, source)
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{source}: has more than {_MAX_BYTES:,} bytes. Name a part of it that is a document")
    try:
        value = json_format.loads(data) if data.lstrip()[:1] == b"{" else await read_yaml(data)
    except (ValueError, RecursionError):
        try:
            value = await read_yaml(data)  # which also begins with a brace at times
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


async def _fetched(source: str) -> bytes:
    """Return the answer of an address, whatever network it is in. Redirects may lead to public addresses, too."""
    from orga.activities.adapters.http import ACCEPTED_ENCODINGS, URL, HTTPError, InvalidURL
    from orga.activities.adapters.tools.guarded_http import PublicBackend, bounded_body, final_response, guarded_client
    from orga.activities.ports import ToolError

    headers = {"user-agent": "orga/0.1", "accept-encoding": ACCEPTED_ENCODINGS}

    def redirected(url: "URL", location: str) -> "URL":
        return url.join(location)

    try:
        url = URL(source)
        async with (
            asyncio.timeout(_FETCH_S),
            guarded_client(PublicBackend([url.host])) as client,
            final_response(url, lambda url: client.stream("GET", url, headers=headers), redirected) as response,
        ):
            if not response.is_success:
                raise UsageError(
                    f"{source}: answered {response.status_code} {response.reason_phrase}. Check the address"
                )
            return (await bounded_body(response, _MAX_BYTES + 1))[0]
    except (ToolError, HTTPError, InvalidURL, UnicodeError, TimeoutError) as error:
        raise UsageError(
            f"{source}: cannot be fetched: {str(error) or type(error).__name__}. Check the address"
        ) from None
