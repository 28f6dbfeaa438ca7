"""`orga tools login`: a person logs in to an MCP server in a browser, for the workers."""

import asyncio
import os
import webbrowser
from datetime import UTC, datetime
from hmac import compare_digest
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qs, urlsplit

import typer

from orga.client.cli.exit_codes import UsageError, usage_errors
from orga.client.cli.options import ConfigFile
from orga.client.cli.shown.text import terminal_line, write_note, write_result
from orga.client.cli.tools.listing import configured_server
from orga.client.config.file import load_config
from orga.client.errors import OrgaError
from orga.client.server.home import prepare_home

if TYPE_CHECKING:
    from mcp.shared.auth import AuthorizationCodeResult

    from orga.activities.adapters.mcp.mcp_settings import ServerSettings

LOGIN_S = 300.0
"""Seconds for the person to log in."""

MAX_REQUEST_BYTES = 16_000
"""Bytes of the browser's request."""

_REQUEST_S = 10.0
"""Seconds for the browser to send its request."""


async def log_in_to_server(
    server: Annotated[
        str,
        typer.Argument(metavar="SERVER", help="The server's name, as in \\[mcp.servers.SERVER].", show_default=False),
    ],
    *,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the address in a browser.")] = True,
    port: Annotated[
        int,
        typer.Option(min=0, max=65_535, help="The port of this machine for the answer. 0 takes a free one."),
    ] = 0,
    logout: Annotated[bool, typer.Option("--logout", help="Remove the stored login instead.")] = False,
    config: ConfigFile = None,
) -> None:
    """Log in to an MCP server in a browser, for all workers with this state folder.

    The server needs oauth = { login = true } in orga.toml. Workers act with your rights there.

    Example: orga tools login crm
    """
    from orga.activities.adapters.mcp.login import LoginFile

    settings = _settings(server, config)
    if not logout:
        await _log_in(settings, port, with_browser=browser)
        return
    async with LoginFile(settings.login_file).locked():  # a worker may be about to refresh it
        was_there = settings.login_file.exists()
        settings.login_file.unlink(missing_ok=True)
    write_note(f"{settings.login_file}: removed" if was_there else f"there was no login to {settings.name}")


def _settings(name: str, config: Path | None) -> "ServerSettings":
    from orga.activities.adapters.mcp.mcp_settings import server_settings

    server = configured_server(name, load_config(config))
    if server.url is None:
        raise UsageError(f"mcp.servers.{name}: nobody logs in to a program. Pass credentials to it with env_from")
    if server.oauth is None or not server.oauth.login:
        raise UsageError(f"mcp.servers.{name}: has no login. Set login = true in [mcp.servers.{name}.oauth]")
    with usage_errors():
        return server_settings({name: server}, {}, os.environ, prepare_home().logins)[0]


async def _log_in(settings: "ServerSettings", port: int, *, with_browser: bool) -> None:
    import httpx2
    from mcp.client.auth import OAuthFlowError, OAuthRegistrationError

    from orga.activities.adapters.mcp.login import log_in

    async def show(address: str) -> None:
        redirect.state = parse_qs(urlsplit(address).query)["state"][-1]
        write_result(address)
        write_note("log in at this address; Ctrl-C ends the command")
        if with_browser:
            Thread(target=webbrowser.open, args=(address,), daemon=True).start()  # may block until the browser ends

    redirect, where = _Redirect(), f"mcp.servers.{settings.name}"
    try:
        listener = await asyncio.start_server(redirect.serve, "127.0.0.1", port, limit=MAX_REQUEST_BYTES)
    except OSError as error:
        raise OrgaError(f"--port {port}: cannot be used ({error.strerror}). Choose another one") from None
    async with listener:
        redirect_uri = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/callback"
        try:
            async with asyncio.timeout(LOGIN_S):
                login = await log_in(settings, redirect_uri, show, lambda: asyncio.shield(redirect.answer))
        except TimeoutError:
            raise OrgaError(
                f"{where}: nobody logged in within {LOGIN_S / 60:g} minutes. Run the command again"
            ) from None
        except httpx2.RequestError as error:
            text = terminal_line(f"{error}" or type(error).__name__, 500)
            host, remedy = error.request.url.host, "Check the address, the network and its proxy"
            raise OrgaError(f"{where}: login failed: {host} cannot be reached: {text}. {remedy}") from None
        except (OAuthFlowError, httpx2.HTTPError) as error:
            text = terminal_line(f"{error}" or type(error).__name__, 500)
            remedy = ". Set oauth.client_id to a registered client" if isinstance(error, OAuthRegistrationError) else ""
            raise OrgaError(f"{where}: login failed: {text}{remedy}") from None
    end = f"{datetime.fromtimestamp(login.expires_at, UTC):%Y-%m-%d %H:%M} UTC" if login.expires_at else "revoked"
    refresh = "workers refresh it" if login.tokens.refresh_token else "it cannot be refreshed, so log in again then"
    write_note(f"logged in to {settings.name}: {settings.login_file}")
    write_note(f"the token is valid until {end}; {refresh}")


class _Redirect:
    """The address of this machine to which the authorization server sends the browser."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self.state: str | None = None
        """A secret that a valid answer has, since other programs and pages can reach this address too."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_S)
            _method, target, *_ = head.split(b" ")
            status, text = self._take(target.decode("ascii"))
            body = f"{text}\n".encode()
            writer.write(
                f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {len(body)}\r\n"
                "cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()

    def _take(self, target: str) -> tuple[str, str]:
        """Take the authorization server's answer. Return the status and the text for the browser."""
        from mcp.client.auth import OAuthFlowError
        from mcp.shared.auth import AuthorizationCodeResult

        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        has_state = self.state is not None and compare_digest(query.get("state", "").encode(), self.state.encode())
        has_answer = parts.path == "/callback" and bool({"code", "error"} & query.keys())
        if not has_state or not has_answer or self.answer.done():
            return "404 Not Found", "There is nothing here."
        if "error" in query:
            why = query.get("error_description") or query["error"]
            self.answer.set_exception(OAuthFlowError(f"the authorization server answered: {why}"))
            return "200 OK", "The authorization server refused the login. The terminal shows the reason."
        self.answer.set_result(AuthorizationCodeResult.model_validate(query))
        return "200 OK", "orga has received the answer. Close this page and return to the terminal."
