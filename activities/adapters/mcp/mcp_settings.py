"""The settings of an MCP server: its configuration, with values and secrets from the worker's environment."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from shutil import which
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from orga.activities.adapters.caller_secrets import CallerSecret, is_by_caller
from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.problem import FileProblem
from orga.activities.ports import ToolContext
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.own_code import bytecode_folder
from orga.workflows.types.tool_calls.mcp import McpOAuth, McpServer, meant_server
from orga.workflows.types.tool_calls.tools import ToolOptions

BASE_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""Variables that every server process gets."""

MAX_TOKENS = 6
"""Tokens that are hidden in texts: the access token and the refresh token of the last three token requests."""

CallerSecrets = tuple[tuple[str, str], ...]
"""A pair for each header in `by_caller`: the tenant or user, and its secret."""


@dataclass(frozen=True)
class ServerSettings:
    """One server. Its `repr` shows no value of the environment."""

    name: str
    server: McpServer
    tool_options: Mapping[str, ToolOptions] = field(default_factory=dict[str, ToolOptions])
    """`[tools.options]` for its tools."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    known_secrets: KnownSecrets = NO_SECRETS
    """The secret values that the configuration names by variable."""
    by_caller: Mapping[str, "CallerHeader"] = field(default_factory=dict[str, "CallerHeader"])
    """Headers whose secret depends on the caller. `headers` has them too if the worker has its own secret for them."""
    client_credential: str = field(default="", repr=False)
    """The secret or the private key of the OAuth client."""
    tokens: deque[str] = field(default_factory=lambda: deque[str](maxlen=MAX_TOKENS), repr=False, compare=False)
    """The last tokens of the OAuth client. All copies of the settings share them."""
    login_file: Path = Path()
    """The file of a person's login at this URL (`orga.activities.adapters.mcp.login`)."""

    @property
    def secrets(self) -> KnownSecrets:
        """The values that must not reach a history."""
        return _with_tokens(self.known_secrets, tuple(self.tokens)) if self.tokens else self.known_secrets

    @property
    def may_repeat_calls(self) -> bool:
        """True if the effect of at least one tool may allow that its call is repeated."""
        effects = {self.server.options.effect, *(options.effect for options in self.tool_options.values())}
        return self.server.trust_annotations or not effects <= {None, "irreversible"}

    def options(self, tool: str) -> ToolOptions:
        """Return the options of a tool: those of its server, overridden by the tool's own."""
        own = self.tool_options.get(tool)
        options = self.server.options.with_timeout(self.server.options.timeout_s or self.server.timeout_s)
        return options.with_overrides(own) if own else options

    def caller_secrets(self, context: ToolContext) -> CallerSecrets:
        """Return the caller's name and secret for each header. Raise ToolError (NoCredentials) if one is missing."""
        secrets = [header.secret for header in self.by_caller.values()]
        return tuple((secret.caller_name(context), secret.for_call(context)) for secret in secrets)

    def for_caller(self, caller_secrets: CallerSecrets) -> Self:
        """Return the settings with these secrets in place of the worker's own."""
        values = [value for _, value in caller_secrets]
        by_caller = zip(self.by_caller.items(), values, strict=True)
        headers = {**self.headers, **{name: header.prefix + value for (name, header), value in by_caller}}
        return replace(self, headers=headers, known_secrets=self.known_secrets.with_values(values))


@lru_cache(maxsize=100)
def _with_tokens(known: KnownSecrets, tokens: tuple[str, ...]) -> KnownSecrets:
    return known.with_values(tokens)


class CallerHeader(NamedTuple):
    secret: CallerSecret
    prefix: str = ""
    """The text before the secret, such as `Bearer `."""


def server_settings(
    servers: Mapping[str, McpServer], options: Mapping[str, ToolOptions], env: Mapping[str, str], logins: Path
) -> list[ServerSettings]:
    """Return the settings of all servers. `logins` is the folder of people's login files.

    Raise ValueError if a variable is not set, a secret would be sent unencrypted, or an option does not apply.
    """
    return [_server_settings(name, server, options, env, logins) for name, server in servers.items()]


def unready_servers(servers: Iterable[ServerSettings]) -> Iterator[FileProblem]:
    """Yield a problem for each server whose program or login is missing here. This connects to no server."""
    for settings in servers:
        section, server = f"mcp.servers.{settings.name}", settings.server
        command = server.command or ""
        program = str((server.cwd or Path()) / command) if "/" in command else command
        if command and which(program, path=settings.environment.get("PATH")) is None:
            remedy = f"install it, or correct {section}.command"
            yield FileProblem(section, f"there is no program {command!r}", remedy)
        if server.oauth and server.oauth.login and not settings.login_file.exists():
            remedy = f"orga tools login {settings.name}"
            yield FileProblem(section, "nobody is logged in, so its tools are missing", remedy)


def _server_settings(
    name: str, server: McpServer, options_by_tool: Mapping[str, ToolOptions], env: Mapping[str, str], logins: Path
) -> ServerSettings:
    section = f"mcp.servers.{name}"
    tool_options = {tool: options for tool, options in options_by_tool.items() if meant_server(tool, (name,))}
    _check_options(f"{section}.options", server.options)
    for tool, options in tool_options.items():
        _check_options(f"tools.options.{tool}", options)
    own_variables = {variable: _required_value(f"{section}.env_from", variable, env) for variable in server.env_from}
    headers, by_caller = dict[str, str](), dict[str, CallerHeader]()
    secrets = [*own_variables.values()]
    for header in _secret_headers(server):
        key = f"{section}.{header.key}"
        if caller_secret := _caller_secret(key, header.reference, env):
            by_caller[header.name] = CallerHeader(caller_secret, header.prefix)
            value = caller_secret.for_worker()
        else:
            value = _required_value(key, header.reference, env)
        if value is not None:
            headers[header.name] = header.prefix + value
            secrets.append(value)
    credential = _client_credential(f"{section}.oauth", server.oauth, env) if server.oauth else ""
    if credential:
        secrets.append(credential)
    if _is_unencrypted(server.url or "") and (headers or by_caller or server.oauth):
        raise ValueError(f"{section}.url: has to begin with https://, because secrets are sent there")
    base = {variable: env[variable] for variable in BASE_VARIABLES if variable in env}
    base["PYTHONPYCACHEPREFIX"] = bytecode_folder()
    return ServerSettings(
        name,
        server,
        tool_options,
        environment=base | own_variables,
        headers=headers,
        known_secrets=KnownSecrets.from_values(secrets),
        by_caller=by_caller,
        client_credential=credential,
        login_file=logins / f"{name}-{sha256((server.url or '').encode()).hexdigest()[:16]}.json",
    )


def _is_unencrypted(url: str) -> bool:
    return urlsplit(url).scheme != "https" and not is_loopback(url)


def _client_credential(section: str, oauth: McpOAuth, env: Mapping[str, str]) -> str:
    if oauth.issuer and _is_unencrypted(oauth.issuer):
        raise ValueError(f"{section}.issuer: has to begin with https://, because secrets are sent there")
    if oauth.secret_from:
        return _required_value(f"{section}.secret_from", oauth.secret_from, env)
    if oauth.login:
        return ""
    key = _required_value(f"{section}.key_from", oauth.key_from or "", env)
    try:
        key_algorithm(key)
    except ValueError as error:
        raise ValueError(f"{section}.key_from: {error}") from None
    return key


def key_algorithm(pem: str) -> str:
    """Return the algorithm that a private key signs with. Raise ValueError, without the text, if it is no such key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("is no private key in PEM without a password") from None
    if isinstance(key, RSAPrivateKey):
        return "RS256"
    if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        return "ES256"
    raise ValueError("is no RSA or P-256 key")


class _SecretHeader(NamedTuple):
    name: str
    reference: str
    """The variable that has the secret, or the reference to a secret by caller."""
    key: str
    """The key of `orga.toml` that has the reference."""
    prefix: str = ""


def _secret_headers(server: McpServer) -> Iterator[_SecretHeader]:
    yield from (_SecretHeader(name, reference, "headers_from") for name, reference in server.headers_from.items())
    if server.bearer_from:
        yield _SecretHeader("Authorization", server.bearer_from, "bearer_from", "Bearer ")


def _caller_secret(key: str, reference: str, env: Mapping[str, str]) -> CallerSecret | None:
    try:
        secret = CallerSecret.from_reference(reference, env)
        if secret is not None:
            secret.for_worker()
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    return secret


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
    """Return the variables that certainly hold credentials: those for headers and OAuth. `env_from` may name others."""
    variables = set[str]()
    for server in servers.values():
        variables |= {each.reference for each in _secret_headers(server) if not is_by_caller(each.reference)}
        if server.oauth:
            variables |= {variable for variable in (server.oauth.secret_from, server.oauth.key_from) if variable}
    return variables


def own_options(
    options: Mapping[str, ToolOptions], servers: Iterable[str], static: Iterable[str]
) -> dict[str, ToolOptions]:
    """Return the options that do not apply to a server's tool. `static` has the names of the worker's own tools."""
    static_names, server_names = set(static), set(servers)
    return {
        tool: tool_options
        for tool, tool_options in options.items()
        if tool in static_names or not meant_server(tool, server_names)
    }
