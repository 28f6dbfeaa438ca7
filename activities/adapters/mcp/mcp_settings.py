"""The settings of an MCP server, with variables, headers and secrets from the worker's environment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.mcp.names import meant_server
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.own_code import bytecode_folder
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import ToolOptions

BASE_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""Variables that every server process gets."""


@dataclass(frozen=True)
class ServerSettings:
    """One server. Its `repr` shows no value of the environment."""

    name: str
    server: McpServer
    tool_options: Mapping[str, ToolOptions] = field(default_factory=dict[str, ToolOptions])
    """`[tools.options]` for its tools."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secrets: KnownSecrets = NO_SECRETS
    """The values that the settings pass on by name. None may reach a history."""

    def options(self, tool: str) -> ToolOptions:
        """Return the options of a tool: the server's, overridden by its own."""
        own = self.tool_options.get(tool)
        options = self.server.options.with_timeout(self.server.options.timeout_s or self.server.timeout_s)
        return options.with_overrides(own) if own else options


def server_settings(
    servers: Mapping[str, McpServer], options: Mapping[str, ToolOptions], env: Mapping[str, str]
) -> list[ServerSettings]:
    """Return the settings of all servers.

    Raises:
        ValueError: A variable is not set, a secret would be sent unencrypted, or an option does not apply to a
            server's tool.
    """
    return [
        _one_server_settings(name, server, _options_of_server(name, options), env) for name, server in servers.items()
    ]


def _one_server_settings(
    name: str, server: McpServer, tool_options: Mapping[str, ToolOptions], env: Mapping[str, str]
) -> ServerSettings:
    section = f"mcp.servers.{name}"
    _check_options(f"{section}.options", server.options)
    for tool, options in tool_options.items():
        _check_options(f"tools.options.{tool}", options)
    own_variables = {variable: _required_value(f"{section}.env_from", variable, env) for variable in server.env_from}
    headers = {
        header: _required_value(f"{section}.headers_from", variable, env)
        for header, variable in server.headers_from.items()
    }
    secrets = [*own_variables.values(), *headers.values()]
    if server.bearer_from:
        token = _required_value(f"{section}.bearer_from", server.bearer_from, env)
        headers["Authorization"] = f"Bearer {token}"
        secrets.append(token)
    if headers and urlsplit(server.url or "").scheme != "https" and not is_loopback(server.url or ""):
        raise ValueError(f"{section}.url: has to begin with https://, because secrets are sent there")
    base = {variable: env[variable] for variable in BASE_VARIABLES if variable in env}
    base["PYTHONPYCACHEPREFIX"] = bytecode_folder()
    return ServerSettings(name, server, tool_options, base | own_variables, headers, KnownSecrets.from_values(secrets))


def _options_of_server(name: str, options: Mapping[str, ToolOptions]) -> dict[str, ToolOptions]:
    return {tool: each for tool, each in options.items() if meant_server(tool, (name,))}


def _required_value(key: str, variable: str, env: Mapping[str, str]) -> str:
    if value := env.get(variable):
        return value
    raise ValueError(f"{key}: the environment has no {variable}")


def _check_options(section: str, options: ToolOptions) -> None:
    if options.execution == "local":
        raise ValueError(f'{section}.execution: a tool of an MCP server runs as an activity; leave "activity"')
    if options.isolation is not None:
        raise ValueError(f"{section}.isolation: only a Python function can be isolated; remove it")


def server_secret_variables(servers: Mapping[str, McpServer]) -> set[str]:
    """Return the variables that go into headers, so they hold credentials. `env_from` can name any variable."""
    headers = {variable for server in servers.values() for variable in server.headers_from.values()}
    return headers | {server.bearer_from for server in servers.values() if server.bearer_from}


def own_options(
    options: Mapping[str, ToolOptions], servers: Iterable[str], static: Iterable[str]
) -> dict[str, ToolOptions]:
    """Return the options that apply to no server's tool. Names in `static` belong to the worker's own tools."""
    own, names = set(static), set(servers)
    return {tool: each for tool, each in options.items() if tool in own or not meant_server(tool, names)}
