"""The tools of a worker, including those of MCP servers, and the source of each."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orga.activities.adapters.knowledge.knowledge_tools import RecallKnowledge, StoreKnowledge
from orga.activities.adapters.manifests.tool import manifest_tool, secret_variables
from orga.activities.adapters.mcp.mcp_settings import own_options, server_settings
from orga.activities.adapters.rules import Rules
from orga.activities.adapters.schemas.arguments import schema_problem
from orga.activities.adapters.tools.activity_tool import ActivityTool, DeferredTool
from orga.activities.adapters.tools.catalog import RESERVED_NAMES, ToolCatalog, builtin_tools, with_options
from orga.activities.adapters.tools.github import GitHubSettings
from orga.activities.adapters.tools.python_function import load_function
from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.ports import Tool, ToolContext
from orga.client.config.manifests import ManifestFile, configured_manifests
from orga.client.config.sections import ActivityConfig, DeferredConfig, OrgaConfig, tool_folders
from orga.client.config.trust.rules_in_use import rules_in_use
from orga.client.server.home import server_home
from orga.client.workers.knowledge_store import configured_store
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.text import known_names_hint
from orga.workflows.types.tool_calls.mcp import meant_server
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolOutput, ToolSpec

if TYPE_CHECKING:
    from orga.activities.adapters.mcp.servers import McpServers


def configured_servers(config: OrgaConfig, tools: Iterable[str], env: Mapping[str, str]) -> "McpServers | None":
    """Return the servers, not yet connected, or None if there are none. `tools` are the worker's other tools.

    Raise ValueError for a server that needs something that is missing.
    """
    if not config.mcp.servers:
        return None
    from orga.activities.adapters.mcp.servers import McpServers  # this import takes a second

    settings = server_settings(config.mcp.servers, config.tools.options, env, server_home().logins)
    return McpServers(settings, {*tools, *RESERVED_NAMES, *OWN_ACTIVITIES})


BUILT_IN = "built-in"
IN_CODE = "given in code"


@dataclass(frozen=True)
class WorkerTool:
    tool: Tool
    source: str
    """`built-in`, an import path, the file of a manifest, or `given in code`."""
    digest: str = ""
    """Digest of a Python function's code, including all modules that came with it."""


def worker_tools(
    config: OrgaConfig,
    root: Path,
    env: Mapping[str, str],
    store: KnowledgeStore | None = None,
    in_code: Sequence[Tool] = (),
    *,
    stand_ins: Sequence[Tool] = (),
) -> list[WorkerTool]:
    """Return the built-in tools, the functions and the manifests that the config names, with their options.

    With a `store`, the tools that recall and store knowledge are among the built-in ones. An application's functions
    and a test's `stand_ins` are added, the latter only under names that no tool has.
    """
    wanted = config.tools
    rules = rules_in_use(config, root, env)
    github = GitHubSettings(wanted.github.base_url, wanted.github.repo, env.get("GITHUB_TOKEN"))
    builtin = builtin_tools(
        root,
        allow_hosts=wanted.web.allow_hosts,
        commands=wanted.commands.allow,
        sandbox=wanted.commands.sandbox,
        github=github,
        rules=rules,
        edits=server_home().edits,
    )
    if store is not None:
        builtin += [RecallKnowledge(store, root), StoreKnowledge(store)]
    found = [WorkerTool(tool, BUILT_IN) for tool in builtin]
    functions = [(load_function(path, tool_folders(config)), path) for path in wanted.python]
    found += [WorkerTool(function, path, function.code_digest) for function, path in functions]
    found += [WorkerTool(function, IN_CODE) for function in in_code]
    found += [
        WorkerTool(_manifest_tool(file, config, root, env, rules), str(file.path))
        for file in configured_manifests(config)
    ]
    found += [_activity_tool(name, each) for name, each in wanted.activities.items()]
    known = {each.tool.spec.name for each in found} | wanted.deferred.keys()
    found += [WorkerTool(tool, IN_CODE) for tool in stand_ins if tool.spec.name not in known]
    names = [*(each.tool.spec.name for each in found), *wanted.deferred]
    options = own_options(wanted.options, config.mcp.servers, names)
    found = _configured_tools(found, {name: each for name, each in options.items() if name not in wanted.deferred})
    starts = {each.tool.spec.name: each.tool for each in found}
    later = [_deferred_tool(name, each, starts) for name, each in wanted.deferred.items()]
    return [*found, *_configured_tools(later, {name: options[name] for name in wanted.deferred if name in options})]


def _configured_tools(found: Sequence[WorkerTool], options: Mapping[str, ToolOptions]) -> list[WorkerTool]:
    tools = with_options([each.tool for each in found], options)
    return [replace(each, tool=tool) for tool, each in zip(tools, found, strict=True)]


def manifest_secrets(config: OrgaConfig) -> list[str]:
    """Return the environment variables that hold credentials, according to the configured manifests."""
    return [name for file in configured_manifests(config) for name in secret_variables(file.manifest)]


def _activity_tool(name: str, config: ActivityConfig) -> WorkerTool:
    for key, schema in (("parameters", config.parameters), ("output_schema", config.output_schema)):
        if schema is not None and (problem := schema_problem(schema)):
            raise ValueError(f"tools.activities.{name}.{key}: {problem}")
    tool = ActivityTool(name, **dict(config))
    return WorkerTool(tool, tool.source)


def _deferred_tool(name: str, config: DeferredConfig, starts: Mapping[str, Tool]) -> WorkerTool:
    if config.start is not None and config.start not in starts:
        raise ValueError(
            f"tools.deferred.{name}.start: there is no tool {config.start!r}; {known_names_hint(config.start, starts)}"
        )
    try:
        given: dict[str, Any] = {**dict(config), "start": starts[config.start] if config.start else None}
        tool = DeferredTool(name, **given)
    except ValueError as error:
        raise ValueError(f"tools.deferred.{error}") from None
    return WorkerTool(tool, tool.source)


def _manifest_tool(file: ManifestFile, config: OrgaConfig, root: Path, env: Mapping[str, str], rules: Rules) -> Tool:
    try:
        return manifest_tool(file.manifest, root, env, config.tools.web.allow_hosts, rules)
    except ValueError as error:
        raise ValueError(f"{file.path}: {error}") from error


@asynccontextmanager
async def available_tools(
    config: OrgaConfig, root: Path, env: Mapping[str, str], report: Callable[[str], None]
) -> AsyncGenerator[list[WorkerTool]]:
    """Yield the tools, ready to be called. `report` is called with each server that cannot be reached.

    Raises:
        ValueError: Something in the configuration is unavailable, or two tools have one name.
    """
    own = worker_tools(config, root, env, configured_store(config, env, root))
    configured = configured_servers(config, ToolCatalog(each.tool for each in own), env)
    if configured is None:
        yield own
        return
    async with configured as servers:
        found = await servers.specs([f"{name}_*" for name in config.mcp.servers])
        for name in config.mcp.servers:
            missing = servers.absent_tool(f"{name}_*")
            if missing and missing.is_temporary:
                report(missing.why)
        yield own + [
            WorkerTool(_OfferedTool(spec, tool), f"MCP server {meant_server(name, config.mcp.servers)}")
            for name, spec in found.items()
            if (tool := servers.tool(name, spec.digest))
        ]


class _OfferedTool:
    """A server's tool with its current definition."""

    def __init__(self, spec: ToolSpec, tool: Tool) -> None:
        self.spec = spec
        self._tool = tool

    async def call(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        return await self._tool.call(arguments, context)
