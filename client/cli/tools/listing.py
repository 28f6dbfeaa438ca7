"""`orga tools list`, `pin` and `check`. Also loads the configured tools for other commands."""

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orga.client.cli.exit_codes import ExitCode, UsageError, usage_errors
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import file_problem_lines, terminal_line, write_json, write_note, write_result
from orga.client.config.file import load_config
from orga.client.config.problems import unknown_key_remedy
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import ToolSpec

if TYPE_CHECKING:
    from orga.client.config.manifests import ManifestFile
    from orga.client.workers.tool_sources import WorkerTool


@dataclass(frozen=True)
class LocalTools:
    config: OrgaConfig
    tools: "list[WorkerTool]"


@asynccontextmanager
async def open_local_tools(config_file: Path | None, *, unpinned: str | None = None) -> AsyncGenerator[LocalTools]:
    """Yield the tools, ready to be called. Raise UsageError, with a line for each problem, if they cannot be loaded.

    Args:
        unpinned: If given, connect only to this MCP server, and take its current definitions instead of pinned ones.
    """
    from orga.client.workers.tool_sources import available_tools

    config = load_config(config_file)
    if unpinned is not None:
        configured_server(unpinned, config)
        config = config.with_mcp(config.mcp.unpinned_server(unpinned))
    root = (config.tools.files.root or Path.cwd()).resolve()
    async with AsyncExitStack() as opened:
        with usage_errors():
            tools = await opened.enter_async_context(available_tools(config, root, os.environ, write_note))
        yield LocalTools(config, tools)


def configured_server(name: str, config: OrgaConfig) -> McpServer:
    """Return a server of `[mcp.servers]`. Raise UsageError if there is none of that name."""
    if (server := config.mcp.servers.get(name)) is not None:
        return server
    known = list(config.mcp.servers)
    remedy = unknown_key_remedy(name, known) if known else f"[mcp.servers] is empty. Add [mcp.servers.{name}]"
    raise UsageError(f"there is no MCP server {name!r}; {remedy}")


async def list_tools(*, json: Json = False, config: ConfigFile = None) -> None:
    """Show the tools of this configuration: effect, source, options. No Temporal server is needed.

    Example: orga tools list --json
    """
    async with open_local_tools(config) as local:
        if json:
            write_json([_tool_json(worker_tool) for worker_tool in local.tools])
        else:
            write_result(*_tool_lines(local.tools))
    write_note(f"tools: {len(local.tools)}; an agent has those that its configuration lists")


def _tool_lines(tools: "list[WorkerTool]") -> list[str]:
    width = max((len(worker_tool.tool.spec.name) for worker_tool in tools), default=0)
    lines = list[str]()
    for worker_tool in tools:
        spec = worker_tool.tool.spec
        options = [name if value is True else f"{name} {value}" for name, value in _changed_options(spec).items()]
        digest = f"  {worker_tool.digest[:_SHOWN_DIGEST_CHARS]}" if worker_tool.digest else ""
        suffix = f"  ({', '.join(options)})" if options else ""
        lines.append(f"{spec.name:<{width}}  {spec.effect:<12}  {worker_tool.source}{digest}{suffix}")
    return lines


_SHOWN_DIGEST_CHARS = 19
"""`sha256:` and twelve digits."""


def _changed_options(spec: ToolSpec) -> dict[str, Any]:
    return spec.options.model_dump(mode="json", exclude_defaults=True)


def _tool_json(worker_tool: "WorkerTool") -> dict[str, Any]:
    spec = worker_tool.tool.spec
    return {
        "name": spec.name,
        "description": spec.description,
        "effect": spec.effect,
        "source": worker_tool.source,
        **({"digest": worker_tool.digest} if worker_tool.digest else {}),
        "options": _changed_options(spec),
        "parameters": spec.parameters,
    }


async def pin(
    server: Annotated[
        str,
        typer.Argument(metavar="SERVER", help="The server's name, as in \\[mcp.servers.SERVER].", show_default=False),
    ],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Show the definitions of an MCP server's tools, and print the lines for orga.toml that pin them.

    Models read these definitions, so pin only what you have read. Runs with only pinned definitions start untainted. A
    tool whose definition differs from the pinned one is not offered.

    Example: orga tools pin github >> orga.toml
    """
    async with open_local_tools(config, unpinned=server) as local:
        specs = [worker_tool.tool.spec for worker_tool in local.tools]
        specs = [spec for spec in specs if spec.name.startswith(f"{server}_") and spec.digest]
    if not specs:
        raise UsageError(f"the MCP server {server!r} offers no usable tool. The lines above show the reason")
    pins = {spec.name: spec.digest for spec in specs}
    if json:
        write_json({"server": server, "pinned": pins})
        return
    for spec in specs:
        parameters = terminal_line(str(spec.parameters), 2_000)
        write_note(f"{spec.name}: {terminal_line(spec.description, 2_000)}\n  {parameters}")
    lines = [f'{name} = "{digest}"' for name, digest in pins.items()]
    write_result(f"[mcp.servers.{server}.pinned]", *lines)


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE", help="The manifests. Default: those of \\[tools] manifests.", show_default=False
        ),
    ] = None,
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Check manifests of tools, and show each problem with file, line and remedy. Exit code 1 means there are some.

    Nothing is run. Environment variables are not checked, because a worker may have others.

    Example: orga tools check tools/count_words.toml
    """
    from orga.client.config.manifests import manifest_paths, read_manifests

    paths = manifest_paths(map(str, files) if files else load_config(config).tools.manifests)
    if not paths:
        raise UsageError(
            'there are no manifests. Write one with: orga tools new NAME, and set [tools] manifests = ["tools/*.toml"]'
        )
    manifests, problems = read_manifests(paths)
    if json:
        tools = [_manifest_json(file) for file in manifests]
        write_json({"ok": not problems, "tools": tools, "problems": [asdict(problem) for problem in problems]})
    else:
        write_result(*map(_manifest_line, manifests), *chain.from_iterable(map(file_problem_lines, problems)))
    write_note(
        f"{len(problems)} to fix; workers refuse to start until then" if problems else f"tools: {len(manifests)}"
    )
    return ExitCode.FAULTY if problems else ExitCode.COMPLETED


def _manifest_json(file: "ManifestFile") -> dict[str, Any]:
    from orga.activities.adapters.manifests.tool import manifest_spec

    spec = manifest_spec(file.manifest)
    return {"name": spec.name, "file": str(file.path), "effect": spec.effect, "parameters": spec.parameters}


def _manifest_line(file: "ManifestFile") -> str:
    manifest = file.manifest
    kind = "command" if manifest.command else "request"
    asks = ", with approval" if manifest.approval else ""
    return f"✓ {manifest.name}: {manifest.effect} {kind}{asks} ({file.path})"
