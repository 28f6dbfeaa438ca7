"""Builds the tools of a worker, including those of MCP servers, and states the source of each."""

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
from orga.activities.adapters.tools.catalog import (
    RESERVED_NAMES,
    ToolCatalog,
    ToolWithSpec,
    builtin_tools,
    with_options,
)
from orga.activities.adapters.tools.github import GitHubSettings
from orga.activities.adapters.tools.python_function import load_function
from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.ports import Tool
from orga.client.config.manifests import ManifestFile, configured_manifests
from orga.client.config.sections import ActivityConfig, DeferredConfig, OrgaConfig, tool_folders
from orga.client.config.trust.rules_in_use import rules_in_use
from orga.client.server.home import server_home
from orga.client.workers.knowledge_store import configured_store
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.text import known_names_hint
from orga.workflows.types.tool_calls.mcp import meant_server
from orga.workflows.types.tool_calls.tools import ToolOptions

if TYPE_CHECKING:
    from orga.activities.adapters.mcp.servers import McpServers


BUILT_IN = "built-in"
IN_CODE = "given in code"


def configured_servers(config: OrgaConfig, tools: Iterable[str], env: Mapping[str, str]) -> "McpServers | None":
    """Return the servers, not yet connected, or None if there are none. `tools` are the worker's other tools.

    Raise ValueError if something that a server needs is missing.
    """
    if not config.mcp.servers:
        return None
    from orga.activities.adapters.mcp.servers import McpServers  # this import takes a second

    settings = server_settings(config.mcp.servers, config.tools.options, env, server_home().logins)
    return McpServers(settings, {*tools, *RESERVED_NAMES, *OWN_ACTIVITIES})


@dataclass(frozen=True)
class WorkerTool:
    tool: Tool
    source: str
    """`built-in`, an import path, the file of a manifest, or `given in code`."""
    digest: str = ""
    """Digest of the code of a Python function, including all modules that came with it. Empty for other tools."""


def worker_tools(
    config: OrgaConfig,
    root: Path,
    env: Mapping[str, str],
    store: KnowledgeStore | None = None,
    in_code: Sequence[Tool] = (),
    *,
    stand_ins: Sequence[Tool] = (),
) -> list[WorkerTool]:
    """Return the built-in tools, and the functions, manifests, activities and deferred tools of the configuration.

    All have their configured options.

    Args:
        config: The worker's configuration.
        root: The root of the file tools.
        env: The environment, with tokens and credentials.
        store: If given, the tools that recall and store knowledge are among the built-in ones.
        in_code: Tools of an application.
        stand_ins: Tools of a test. They are added only under names that no other tool has.
    """
    settings = config.tools
    rules = rules_in_use(config, root, env)
    tools = [WorkerTool(tool, BUILT_IN) for tool in _built_in_tools(config, root, env, rules)]
    if store is not None:
        tools += [WorkerTool(tool, BUILT_IN) for tool in (RecallKnowledge(store, root), StoreKnowledge(store))]
    functions = [(load_function(path, tool_folders(config)), path) for path in settings.python]
    tools += [WorkerTool(function, path, function.code_digest) for function, path in functions]
    tools += [WorkerTool(function, IN_CODE) for function in in_code]
    tools += [
        WorkerTool(_manifest_tool(file, config, root, env, rules), str(file.path))
        for file in configured_manifests(config)
    ]
    tools += [_activity_tool(name, activity) for name, activity in settings.activities.items()]
    taken = {item.tool.spec.name for item in tools} | settings.deferred.keys()
    tools += [WorkerTool(tool, IN_CODE) for tool in stand_ins if tool.spec.name not in taken]
    names = [*(item.tool.spec.name for item in tools), *settings.deferred]
    options = own_options(settings.options, config.mcp.servers, names)
    deferred_options = {name: own for name, own in options.items() if name in settings.deferred}
    other_options = {name: own for name, own in options.items() if name not in settings.deferred}
    tools = _with_options(tools, other_options)
    starts = {item.tool.spec.name: item.tool for item in tools}
    deferred = [_deferred_tool(name, tool, starts) for name, tool in settings.deferred.items()]
    return [*tools, *_with_options(deferred, deferred_options)]


def _built_in_tools(config: OrgaConfig, root: Path, env: Mapping[str, str], rules: Rules) -> list[Tool]:
    settings = config.tools
    return builtin_tools(
        root,
        allow_hosts=settings.web.allow_hosts,
        commands=settings.commands.allow,
        sandbox=settings.commands.sandbox,
        github=GitHubSettings(settings.github.base_url, settings.github.repo, env.get("GITHUB_TOKEN")),
        rules=rules,
        edits=server_home().edits,
    )


def _with_options(items: Sequence[WorkerTool], options: Mapping[str, ToolOptions]) -> list[WorkerTool]:
    tools = with_options([item.tool for item in items], options)
    return [replace(item, tool=tool) for tool, item in zip(tools, items, strict=True)]


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
        settings: dict[str, Any] = {**dict(config), "start": starts[config.start] if config.start else None}
        tool = DeferredTool(name, **settings)
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
    """Yield the tools, ready to be called. `report` is called with the reason for each server out of reach.

    Raises:
        ValueError: Something in the configuration is unavailable, or two tools have one name.
    """
    own = worker_tools(config, root, env, configured_store(config, env, root))
    configured = configured_servers(config, ToolCatalog(item.tool for item in own), env)
    if configured is None:
        yield own
        return
    async with configured as servers:
        specs = await servers.specs([f"{name}_*" for name in config.mcp.servers])
        for name in config.mcp.servers:
            missing = servers.absent_tool(f"{name}_*")
            if missing and missing.is_temporary:
                report(missing.why)
        offered: list[WorkerTool] = []
        for name, spec in specs.items():
            if tool := servers.tool(name, spec.digest):
                source = f"MCP server {meant_server(name, config.mcp.servers)}"
                offered.append(WorkerTool(ToolWithSpec(tool, spec), source))
        yield [*own, *offered]
