"""MCP servers as people configure them: `[mcp.servers.NAME]` of `orga.toml`."""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import Field, model_validator

from orga.workflows.types.record import CheckedInput, replace_fields
from orga.workflows.types.tool_calls.sandbox import ConfiguredPath
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolProfile

DEFINITIONS = "definitions of "
"""Begins the name of a server in a taint that its tool definitions cause. No tool can have such a name."""

Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""The name of an environment variable."""

SecretReference = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\[(tenant|trusted_context(\.[^.\s\[\]{}]+)+)\])?$", max_length=300)
]
"""`VARIABLE` for its value. `VARIABLE[tenant]` or `VARIABLE[trusted_context.user]` for a secret of each caller."""

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class McpOAuth(CheckedInput):
    """`[mcp.servers.NAME.oauth]`: the worker's own client (client credentials), or the login of a person."""

    login: bool = False
    """A person logs in with `orga tools login NAME`. The worker then acts with that person's rights."""
    issuer: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]+[^\s?#]*$")
    """The only authorization server that is used. A login without it uses the one that the MCP server names."""
    client_id: str | None = Field(default=None, min_length=1, max_length=1_000)
    """The name under which the client is registered at the issuer. A login without it registers a client."""
    scope: str | None = Field(default=None, pattern=r"^[!-~]+( [!-~]+)*$", max_length=2_000)
    """The scope that a login requests, separated by spaces. Null: that of the server's metadata."""
    secret_from: Variable | None = None
    """The variable that holds the client's secret. A login needs it only if the client is registered with one."""
    key_from: Variable | None = None
    """Instead of a secret: the variable that holds a private key (PEM, RSA or P-256), which signs the requests."""

    @model_validator(mode="after")
    def _one_credential(self) -> "McpOAuth":
        if self.login:
            if self.key_from:
                raise ValueError("login uses no private key; remove key_from, or login")
            if self.secret_from and (self.issuer is None or self.client_id is None):
                raise ValueError("secret_from needs issuer and client_id")
            return self
        if (self.secret_from is None) == (self.key_from is None):
            raise ValueError("needs either secret_from or key_from, or login = true")
        if self.issuer is None or self.client_id is None:
            raise ValueError("secret_from and key_from need issuer and client_id")
        if self.scope is not None:
            raise ValueError("scope goes with login = true; remove it")
        return self


class McpServer(CheckedInput):
    """One server: a `command` with standard streams, or a `url` (streamable HTTP)."""

    command: str | None = Field(default=None, min_length=1)
    """A program. The worker starts it in a process group of its own, never through a shell."""
    args: tuple[str, ...] = ()
    """Arguments of `command`."""
    cwd: ConfiguredPath | None = None
    """Relative to the file that sets it, whose folder is the default. Null: the folder where the worker was started."""
    env_from: tuple[Variable, ...] = ()
    """Variables of the worker's environment that the command gets, in addition to HOME, PATH and the like."""
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/]+")
    """The address of a server that is reached over HTTP, instead of `command`."""
    headers_from: dict[HeaderName, SecretReference] = {}
    """Headers, each with the variable that holds its whole value. `VARIABLE[tenant]` or
    `VARIABLE[trusted_context.user]`: each call gets the value of its run's tenant or user, from the JSON file whose
    path the variable has."""
    bearer_from: SecretReference | None = None
    """The variable that holds the token of `Authorization: Bearer`, or `VARIABLE[tenant]` and the like."""
    oauth: McpOAuth | None = None
    """The worker's client at the server's authorization server, or a person's login. Null: none."""
    resources: bool = False
    """Offer the tools `NAME_list_resources` and `NAME_read_resource`."""
    prompts: bool = False
    """Offer the tools `NAME_list_prompts` and `NAME_get_prompt`."""
    connect_timeout_s: float = Field(default=30.0, gt=0, le=600)
    """Seconds for its start, the handshake and the first list of tools."""
    timeout_s: float | None = Field(default=None, ge=0.001, le=86_400)
    """Seconds for one call of any of its tools. Null takes `tool_timeout_s` of the run."""
    trust_annotations: bool = False
    """Trust the server's own hints about effects. Otherwise a tool whose effect nobody has set is irreversible."""
    tool_profile: ToolProfile = ToolProfile()
    """The tools that are offered, by the names that agents use (`NAME_*`)."""
    pinned: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]] = {}
    """Digests by the names that agents use. Only the definition with this digest is offered, and it leaves no taint."""
    options: ToolOptions = ToolOptions()
    """Options of all its tools. `[tools.options.NAME_tool]` overrides them."""

    def without_pins(self) -> Self:
        """Return the server without pins, so that its definitions are offered as they are."""
        return replace_fields(self, {"pinned": {}})

    @model_validator(mode="after")
    def _one_transport(self) -> "McpServer":
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either a command or a url")
        if self.url is not None and (self.args or self.cwd or self.env_from):
            raise ValueError("args, cwd and env_from go with a command, not with a url")
        if self.command is not None and (self.headers_from or self.bearer_from or self.oauth):
            raise ValueError("headers_from, bearer_from and oauth go with a url; a command has env_from")
        if self.oauth and (self.bearer_from or "authorization" in map(str.lower, self.headers_from)):
            raise ValueError("oauth sets Authorization itself; remove it from bearer_from and headers_from")
        return self


SEPARATOR = "_"
"""Separates server and tool. No server's name contains it, so tools of two servers never share a name."""


def meant_server(tool: str, servers: Iterable[str]) -> str | None:
    """Return the server whose name begins `tool`, a tool name or a glob, or None."""
    prefix, separator, _ = tool.partition(SEPARATOR)
    return prefix if separator and prefix in servers else None


def is_server_tool(tool: str, servers: Iterable[str]) -> bool:
    """Return True if a tool name or a glob begins with the name of one of the servers."""
    return meant_server(tool, servers) is not None
