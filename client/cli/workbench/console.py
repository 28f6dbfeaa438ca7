"""`orga console` serves the web console. `orga dev` serves one through `console_of_dev`."""

import asyncio
import getpass
import html
import webbrowser
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

import typer

from orga.activities.adapters.shared_files import write_atomically
from orga.client.cli.connection import CliContext, cli_context, raising_server_death
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.inspect.journal import signing_key_file
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.config.file import NO_FILE
from orga.client.config.known_input import refuse_unknown, requested_names
from orga.client.errors import OrgaError
from orga.client.server.home import server_home
from orga.client.workers.process import WorkerFailed, keep_worker

if TYPE_CHECKING:
    from orga.workflows.types.goals.goal_input import GoalInput
    from orga.workflows.types.input import AgentInput
    from orga.workflows.types.sessions.session_input import SessionInput

DEFAULT_PORT = 8642
LOOPBACK = "127.0.0.1"

RoleName = Literal["viewer", "operator", "approver", "admin"]


@dataclass(frozen=True)
class _Options:
    """The options that decide who can reach the console, and how."""

    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    read_only: bool = False
    url: str | None = None
    tokens: Path | None = None
    proxy: str | None = None
    behind_proxy: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    may_decide: bool = False

    @property
    def is_exposed(self) -> bool:
        """True if people on other machines can reach the console."""
        return not _is_loopback(self.host) or self.behind_proxy or self.proxy is not None

    def check(self) -> None:
        """Raise UsageError if the console would not be safe, or if the value of an option cannot be used."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("--tls-cert: needs --tls-key, and --tls-key needs --tls-cert. Give both files")
        for option, path in (("--tls-cert", self.tls_cert), ("--tls-key", self.tls_key)):
            if path is not None and not path.is_file():
                raise UsageError(f"{option}: file not found: {path}")
        if self.proxy is not None and not _is_network(self.proxy):
            raise UsageError(f"--proxy: {self.proxy!r} is no address or network. Give one such as 10.0.0.7")
        if self.url is not None and (not urlsplit(self.url).netloc or urlsplit(self.url).path.strip("/")):
            raise UsageError(f"--url: {self.url!r} must be like https://console.example.com")
        if not self.is_exposed:
            return
        where = "--behind-proxy" if self.behind_proxy else "--proxy"
        if not _is_loopback(self.host):
            where = f"--host {self.host}"
        if self.tokens is None and self.proxy is None:
            raise UsageError(
                f"{where}: others could enter without a name. Add --tokens FILE, or --proxy ADDRESS if a proxy "
                "authenticates them"
            )
        if self.tls_cert is None and not self.behind_proxy and self.proxy is None:
            raise UsageError(
                f"{where}: tokens would travel unencrypted. Add --tls-cert and --tls-key, or --behind-proxy if a proxy "
                "in front of the console has TLS"
            )
        if self.url is None:
            raise UsageError(f"{where}: the console must know its own address. Add --url https://NAME")

    @property
    def scheme(self) -> str:
        if self.url is not None:
            return urlsplit(self.url).scheme
        return "http" if self.tls_cert is None else "https"

    def hosts(self, port: int) -> frozenset[str]:
        names = {self.host} if self.is_exposed else {LOOPBACK, "localhost", "[::1]", self.host}
        hosts = {f"{name}:{port}" for name in names}
        if port in {80, 443}:  # browsers omit these
            hosts |= names
        if self.url:
            hosts.add(urlsplit(self.url).netloc.lower())
        return frozenset(hosts)


class ConsoleAddress(NamedTuple):
    """The addresses of a console, with the owner's token."""

    page: str
    """The address for browsers. Its host name is private, as browsers send a cookie of `127.0.0.1` to all its ports."""
    plain: str
    """The address for scripts, and for browsers that do not resolve the private name."""


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


async def console(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port. 0 takes any free one.")] = DEFAULT_PORT,
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = LOOPBACK,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse everything that changes something.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open it in your browser.")] = False,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file of names that may enter, with tokens, roles, tenants.")
    ] = None,
    add_token: Annotated[
        str | None, typer.Option(metavar="NAME", help="Add a name to --tokens, print its token once, and exit.")
    ] = None,
    role: Annotated[
        RoleName,
        typer.Option(help="With --add-token: what the name may do. Each role may do more than the one before."),
    ] = "viewer",
    tenant: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="With --add-token: only runs of this tenant. Repeat it.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The address that browsers use, if it is not --host and --port.")
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy in front of the console has TLS.")
    ] = False,
    proxy: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Trust X-Forwarded-User and X-Forwarded-Groups (orga:ROLE, orga:tenant:NAME) from this address.",
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate, as PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, as PEM.")] = None,
    may_decide: Annotated[
        bool,
        typer.Option(
            "--may-decide", help="Let assistants over MCP decide held calls, if their token is an approver's."
        ),
    ] = False,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Start no worker here.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Open the printed address in a browser. It contains a token, so keep it to yourself. Runs go on after the console
    stops. If no worker is running, the command starts one.

    For access from other machines, names (--tokens or --proxy) and TLS (--tls-cert or a proxy) are required.

    Example: orga console --open

    Example: orga console --add-token ada --role approver --tokens tokens.json

    Example: orga console --host 0.0.0.0 --url https://console.example.com --behind-proxy --tokens tokens.json
    """
    if add_token is not None:
        _add_token(add_token, role, tenant or [], tokens, as_json=json)
        return
    options = _Options(host, port, read_only, url, tokens, proxy, behind_proxy, tls_cert, tls_key, may_decide)
    options.check()
    with suppress(asyncio.CancelledError):
        async with cli_context(config) as context, _serve_console(context, options) as address:
            if json:
                write_json({"url": address.plain, "page": address.page})
            else:
                write_result(address.page)
            if address.page != address.plain:
                write_note(f"for scripts, and for a browser that does not find this name: {address.plain}")
            write_note("Ctrl-C ends the console; runs go on")
            if open_:
                _open_in_browser(address.page)
            watched = raising_server_death(context.connection.endpoint)
            async with _optional_worker(context, is_wanted=not no_worker), watched:
                await asyncio.Event().wait()


def _add_token(name: str, role: RoleName, tenants: list[str], tokens: Path | None, *, as_json: bool) -> None:
    from orga.client.console.doors import TokenFile

    if tokens is None:
        raise UsageError("--add-token: needs --tokens FILE, to which the name is added")
    token = TokenFile(tokens).add(name, role, tenants)
    if as_json:
        write_json({"name": name, "role": role, "tenants": tenants or None, "token": token})
    else:
        write_note(f"{name} is {role} now. The token is shown only here:")
        write_result(token)


def _open_in_browser(address: str) -> None:
    """Open the address through a file that only this user can read. Others can see the arguments of a process."""
    page = server_home().console_page
    write_atomically(
        page, f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">'.encode()
    )
    Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()  # may block until the browser ends


@asynccontextmanager
async def _optional_worker(context: CliContext, *, is_wanted: bool) -> AsyncGenerator[None]:
    """Keep a worker. If it cannot start, only write a note: a console without a worker still shows and starts runs."""
    async with AsyncExitStack() as stack:
        if is_wanted:
            try:
                order = context.worker_order(for_folder=True)
                await stack.enter_async_context(keep_worker(context.client, order, write_note, context.require_usable))
            except (OrgaError, WorkerFailed, OSError) as error:
                write_note(f"no worker is started: {error}")
        yield


@asynccontextmanager
async def console_of_dev(context: CliContext) -> AsyncGenerator[ConsoleAddress]:
    """Serve a console on loopback and yield its address. If the usual port is taken, it has any free one."""
    async with AsyncExitStack() as stack:
        try:
            address = await stack.enter_async_context(_serve_console(context, _Options()))
        except OrgaError:
            address = await stack.enter_async_context(_serve_console(context, _Options(port=0)))
        yield address


@asynccontextmanager
async def _serve_console(context: CliContext, options: _Options) -> AsyncGenerator[ConsoleAddress]:
    from orga.client.console.app import console_app  # only these commands need the web server
    from orga.client.console.doors import Doors, Proxy, TokenFile, owner_token, private_name
    from orga.client.console.event_stream import hub_of
    from orga.client.console.routes import Console
    from orga.client.console.serving import LOOPBACK_NAMES, TlsFiles, bound_socket, loopback_sockets, served
    from orga.client.frontends.mounted import mounted_adapters

    host = options.host
    sockets = [bound_socket(host, options.port)] if options.is_exposed else loopback_sockets(host, options.port)
    port = sockets[0].getsockname()[1]
    token = "" if options.is_exposed else owner_token(server_home().console_token)
    may_be_renamed = host in LOOPBACK_NAMES and options.tls_cert is None  # a certificate is for another name
    has_own_name = bool(token) and options.url is None and may_be_renamed
    private_host = f"{private_name(token)}:{port}" if has_own_name else ""
    doors = Doors(
        options.hosts(port) | ({private_host} if private_host else set[str]()),
        getpass.getuser(),
        token=token,
        read_only=options.read_only,
        scheme=options.scheme,
        tokens=TokenFile(options.tokens) if options.tokens else None,
        proxy=Proxy(options.proxy) if options.proxy else None,
    )

    def check(given: "AgentInput | GoalInput | SessionInput") -> None:
        if context.connection.endpoint.embedded:  # workers of a configured server may have other configurations
            refuse_unknown(requested_names(given), context.config)

    tls = TlsFiles(options.tls_cert, options.tls_key) if options.tls_cert and options.tls_key else None
    console = Console(
        context.connection,
        doors,
        signing_key_file(context.config.audit),
        mounted_adapters(context.config, may_decide=options.may_decide),
        config_file=context.config.file or NO_FILE,
        check=check,
    )
    app = console_app(console)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(hub_of(app, console).close)
        await stack.enter_async_context(served(app, sockets, tls))
        shown_host = "localhost" if host == "::1" else host
        base = options.url.rstrip("/") if options.url else f"{options.scheme}://{shown_host}:{port}"
        query = f"/?token={token}" if token else ""
        page_base = f"{options.scheme}://{private_host}" if private_host else base
        yield ConsoleAddress(page_base + query, base + query)
