"""Chooses the server: the configured one, else the embedded one."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from temporalio.client import Client
from temporalio.envconfig import ClientConfig, ClientConnectConfig

from orga.client.errors import ConfigError, ServerUnavailable
from orga.client.server.embedded import ensure_server, running_server
from orga.client.server.endpoint import Endpoint, Report
from orga.client.server.server_errors import explain_failure

CONNECT_TIMEOUT_S = 10.0
EMBEDDED_NAMESPACE = "default"


async def resolve_endpoint(configured: str | None, report: Report, *, namespace: str | None = None) -> Endpoint:
    """Return a server that answers. The embedded server starts only if none is configured.

    `configured` overrides `TEMPORAL_ADDRESS`. That overrides the profile in Temporal's own configuration file, whose
    name is `TEMPORAL_PROFILE` or `default`. `namespace` overrides `TEMPORAL_NAMESPACE` and the profile in the same way.

    Raises:
        ServerUnavailable: The configured server does not answer, or the embedded one cannot be started.
        ConfigError: A namespace is named without a server, or the address is invalid.
    """
    options = _standard_options()
    address = configured or options.get("target_host")
    origin = "the configured address" if configured else "the address of the TEMPORAL_* environment or profile"
    if address is None:
        _require_no_namespace(namespace, options.get("namespace"))
        return await ensure_server(report)
    _require_no_scheme(address)
    namespace = namespace or options.get("namespace") or "default"
    endpoint = Endpoint(address, _embedded_ui(address), namespace)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await Client.connect(**connect_options(endpoint))
    except TimeoutError as error:
        raise _unreachable_error(address, f"no answer within {CONNECT_TIMEOUT_S:g} s", origin) from error
    except (RuntimeError, ValueError) as error:
        raise _unreachable_error(address, await explain_failure(error, address), origin) from error
    return endpoint


def names_server(configured: str | None) -> bool:
    """Return whether the configuration or Temporal's own environment names a server."""
    return bool(configured or standard_address())


def standard_address(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the server that `TEMPORAL_ADDRESS` or Temporal's profile names, by default in our own environment."""
    return _standard_options(environment).get("target_host")


def connect_options(endpoint: Endpoint) -> ClientConnectConfig:
    """Return arguments for `Client.connect`. Only a configured server gets credentials from the environment."""
    options = ClientConnectConfig() if endpoint.embedded else _standard_options()
    options["target_host"] = endpoint.address
    options["namespace"] = endpoint.namespace
    return options


def _embedded_ui(address: str) -> str | None:
    with suppress(ServerUnavailable):
        embedded = running_server()
        if embedded is not None and embedded.address == address.replace("localhost:", "127.0.0.1:"):
            return embedded.ui
    return None


def _require_no_scheme(address: str) -> None:
    scheme, separator, rest = address.partition("://")
    if separator:
        tls = " (TLS: set TEMPORAL_TLS=true)" if scheme == "https" else ""
        raise ConfigError(
            f"{address!r} is no address of a Temporal server; write HOST:PORT, as {rest.rstrip('/')}{tls}"
        )


def _require_no_namespace(configured: str | None, standard: str | None) -> None:
    """Refuse a namespace without an address, because it must be one of another server than the embedded one."""
    namespace = configured or standard
    if namespace and namespace != EMBEDDED_NAMESPACE:
        source = "[temporal] namespace" if configured else "TEMPORAL_NAMESPACE, or Temporal's profile,"
        raise ConfigError(
            f"{source} names {namespace!r}, and no address says where; name one (TEMPORAL_ADDRESS, [temporal] address)"
            f" or leave the namespace out: the embedded server has {EMBEDDED_NAMESPACE!r} alone"
        )


def _standard_options(environment: Mapping[str, str] | None = None) -> ClientConnectConfig:
    try:
        return ClientConfig.load_client_connect_config(
            override_env_vars=None if environment is None else dict(environment)
        )
    except RuntimeError as error:
        raise ServerUnavailable(
            f"Temporal's configuration is not usable ({' '.join(str(error).split())})",
            "correct it, or check TEMPORAL_PROFILE and TEMPORAL_CONFIG_FILE",
        ) from error


def _unreachable_error(address: str, reason: str, origin: str) -> ServerUnavailable:
    return ServerUnavailable(
        f"the Temporal server at {address} does not answer ({reason})",
        f"start it or correct {origin}; without one, a server is started here",
    )
