"""Servers at which a person logs in: the command stores the login, and all workers use and refresh it."""

import asyncio
import json
import signal
import stat
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult
from temporalio.client import Client

from orga.activities.adapters.mcp import login as login_module
from orga.activities.adapters.mcp.keeper import UNAVAILABLE
from orga.activities.adapters.mcp.login import EncryptedOnly, Login, StoredLogin, check_address, log_in
from orga.activities.ports import ToolError
from orga.client.cli.exit_codes import ExitCode
from orga.client.cli.tools import login as login_command
from orga.testing import answers, calls
from orga.workflows.types.tool_calls.mcp import McpOAuth, McpServer
from tests.support.mcp.http_servers import HttpServer, with_logins
from tests.support.mcp.loop import an_mcp_loop
from tests.support.mcp.sources import call_tool_of, settings_of, source_of
from tests.support.mcp.with_logins import KNOWN_CLIENT, SECRET, SECRET_METHODS
from tests.support.programs.inline_command import an_inline_orga
from tests.support.programs.orga_command import Orga
from tests.support.runs.questions import tool_results_in
from tests.support.web.serving import serving

LEAKED = "Bearer [redacted]"
NO_ENV: Mapping[str, str] = {}
NEEDED = "Run: orga tools login crm"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the state folder."""
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def served(tmp_path: Path) -> Generator[HttpServer]:
    with with_logins(tmp_path) as server:
        yield server


def a_server(served: HttpServer, **oauth: Any) -> McpServer:
    return McpServer(url=served.url, oauth=McpOAuth(login=True, **oauth), connect_timeout_s=10)


async def logged_in(server: McpServer, state: str | None = None, env: Mapping[str, str] = NO_ENV) -> Login:
    """Log in as a browser would. `state` replaces the right one."""
    (settings,) = settings_of(env, crm=server)
    sent: list[AuthorizationCodeResult] = []

    async def show(address: str) -> None:
        async with httpx2.AsyncClient(trust_env=False) as browser:
            location = (await browser.get(address)).headers["location"]
        query = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        sent.append(AuthorizationCodeResult.model_validate(query | ({"state": state} if state else {})))

    async def answer() -> AuthorizationCodeResult:
        return sent[0]

    return await log_in(settings, "http://127.0.0.1:1/callback", show, answer)


def issued(folder: Path) -> list[str]:
    """Return why the server was asked for each token."""
    return [json.loads(line)["why"] for line in (folder / "issued").read_text().splitlines()]


def login_file(home: Path) -> Path:
    (path,) = (home / "logins").glob("crm-*.json")
    return path


def let_expire(home: Path) -> None:
    """Let the stored access token be over."""
    path = login_file(home)
    login = json.loads(path.read_text())
    path.write_text(json.dumps(login | {"expires_at": time.time() - 1}))


@pytest.fixture
def orga(served: HttpServer, home: Path, tmp_path: Path) -> Orga:
    """Return a command line with a configuration of the server."""
    (tmp_path / "orga.toml").write_text(f'[mcp.servers.crm]\nurl = "{served.url}"\noauth = {{ login = true }}\n')
    return an_inline_orga(tmp_path, home)


def test_the_command_logs_in_for_the_workers(orga: Orga, home: Path) -> None:
    before = orga("tools", "list")
    assert NEEDED in before.err
    with orga.started("tools", "login", "crm", "--no-browser") as command:
        address = command.line(r"^(http://127\.0\.0\.1:\S+/authorize\?\S+)$")[1]
        assert "code_challenge_method=S256" in address
        page = httpx2.get(address, follow_redirects=True, trust_env=False)
        assert (page.status_code, page.text.startswith("orga has received the answer")) == (200, True)
        assert command.code() == 0
    path = login_file(home)
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert "crm_leak" in orga("tools", "list").out
    orga("tools", "login", "crm", "--logout")
    assert not path.exists()


def test_ctrl_c_ends_the_command(orga: Orga, home: Path) -> None:
    with orga.started("tools", "login", "crm", "--no-browser") as command:
        command.line(r"/authorize\?")
        command.send(signal.SIGINT)
        assert command.code() == 130
    assert not (home / "logins").exists()


def test_a_browser_that_stays_open_does_not_delay_the_login(orga: Orga, home: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    get = "import httpx2, sys; httpx2.get(sys.argv[1], follow_redirects=True, trust_env=False)"
    lines = ["#!/bin/sh", "exec >/dev/null 2>&1", f"{sys.executable} -c '{get}' \"$1\""]
    browser.write_text("\n".join([*lines, "while kill -0 $PPID; do sleep 0.1; done\n"]))
    browser.chmod(0o700)
    orga.env["BROWSER"] = f"{browser} %s"
    with orga.started("tools", "login", "crm") as command:
        assert command.code() == 0
    assert login_file(home).exists()


def test_a_server_that_cannot_be_reached_is_named(orga: Orga, tmp_path: Path) -> None:
    (tmp_path / "orga.toml").write_text('[mcp.servers.crm]\nurl = "http://127.0.0.1:9/mcp"\noauth = { login = true }\n')
    done = orga("tools", "login", "crm", "--no-browser")
    assert "mcp.servers.crm: login failed: 127.0.0.1 cannot be reached: " in done.err
    assert (done.code, "there was no login to crm" in orga("tools", "login", "crm", "--logout").err) == (
        ExitCode.FAILED,
        True,
    )


def test_nobody_logs_in_to_a_program(orga: Orga, tmp_path: Path) -> None:
    (tmp_path / "orga.toml").write_text('[mcp.servers.time]\ncommand = "mcp-server-time"\n')
    done = orga("tools", "login", "time")
    assert (done.code, "nobody logs in to a program" in done.err) == (ExitCode.USAGE, True)
    assert "(mcp-server-time cannot be used: No such file or directory. " in orga("tools", "pin", "time").err


def test_the_command_shows_why_the_server_refuses(orga: Orga, home: Path) -> None:
    with orga.started("tools", "login", "crm", "--no-browser") as command:
        address = command.line(r"/authorize\?(\S+)$")[1]
        redirect, right = (parse_qs(address)[each][0] for each in ("redirect_uri", "state"))
        assert httpx2.get(redirect.replace("callback", "favicon.ico"), trust_env=False).status_code == 404
        for other in ({"error": "forged"}, {"error": "forged", "state": "é"}, {"code": "c", "state": right[:-1]}):
            assert httpx2.get(redirect, params=other, trust_env=False).status_code == 404, "any page can send it"
        refusal = {"error": "access_denied", "state": right}
        assert httpx2.get(redirect, params=refusal, trust_env=False).status_code == 200
        command.line("mcp.servers.crm: login failed: the authorization server answered: access_denied")
        assert command.code() == ExitCode.FAILED
    assert not (home / "logins").exists()


def test_the_command_waits_for_a_limited_time(orga: Orga, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_command, "LOGIN_S", 1.2)
    done = orga("tools", "login", "crm", "--no-browser")
    assert (done.code, "nobody logged in within 0.02 minutes" in done.err) == (ExitCode.FAILED, True)


async def test_a_worker_uses_the_login_and_no_history_has_it(client: Client, served: HttpServer, home: Path) -> None:
    server = a_server(served)
    tokens = (await logged_in(server)).tokens
    async with an_mcp_loop(client, [calls("crm_leak"), answers()], {"crm": server}, listed=["crm_*"], env={}) as loop:
        ran = await loop.run()
    assert tool_results_in(loop) == [LEAKED]
    written = b"".join(event.SerializeToString() for each in ran.histories for event in each.events)
    assert tokens.access_token.encode() not in written


async def test_after_a_restart_an_expired_token_is_refreshed(served: HttpServer, home: Path, tmp_path: Path) -> None:
    server = a_server(served)
    old = await logged_in(server)
    let_expire(home)
    async with source_of({}, crm=server) as source:
        assert await call_tool_of(source, "crm_leak") == LEAKED
    new = Login.model_validate_json(login_file(home).read_text())
    assert issued(tmp_path) == ["login", "refresh"]
    assert (new.tokens.refresh_token == old.tokens.refresh_token, (new.expires_at or 0) > time.time()) == (False, True)


async def test_workers_spend_a_refresh_token_once(served: HttpServer, home: Path, tmp_path: Path) -> None:
    server = a_server(served)
    await logged_in(server)
    let_expire(home)
    async with source_of({}, crm=server) as one, source_of({}, crm=server) as other:
        found = await asyncio.gather(*(call_tool_of(each, "crm_leak") for each in (one, other) * 3))
        assert found == [LEAKED] * 6
        assert issued(tmp_path) == ["login", "refresh"]
        let_expire(home)
        await asyncio.gather(*(call_tool_of(each, "crm_leak") for each in (one, other) * 3))
    assert issued(tmp_path) == ["login", "refresh", "refresh"]


async def test_a_token_that_the_server_revoked_is_refreshed(served: HttpServer, home: Path, tmp_path: Path) -> None:
    server = a_server(served)
    await logged_in(server)
    path = login_file(home)
    login = Login.model_validate_json(path.read_text())
    login.tokens.access_token = "tok-revoked"
    path.write_text(login.model_dump_json(exclude_none=True))
    async with source_of({}, crm=server) as source:
        assert await call_tool_of(source, "crm_leak") == LEAKED
    assert issued(tmp_path) == ["login", "refresh"]


async def test_a_login_that_cannot_be_refreshed_is_needed_again(served: HttpServer, home: Path, tmp_path: Path) -> None:
    server = a_server(served)
    await logged_in(server)
    let_expire(home)
    (tmp_path / "facts.json").write_text(json.dumps({"over": True}))
    async with source_of({}, crm=server) as source:
        absent = source.absent_tool("crm_leak")
        assert absent
        assert (absent.is_temporary, NEEDED in absent.why) == (True, True)
        with pytest.raises(ToolError, match=NEEDED) as raised:
            await call_tool_of(source, "crm_leak")
        assert raised.value.kind == UNAVAILABLE
        assert issued(tmp_path) == ["login", "refused"], "the refused token was sent once"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="nobody has logged in"),
        pytest.param({"client_id": "another"}, id="another client"),
        pytest.param({"issuer": "https://auth.example.org"}, id="another issuer"),
        pytest.param({"mode": 0o644}, id="a file that others can read"),
    ],
)
async def test_without_a_usable_login_the_error_names_the_command(
    served: HttpServer, home: Path, change: dict[str, Any]
) -> None:
    if change:
        await logged_in(a_server(served))
    if mode := change.get("mode"):
        login_file(home).chmod(mode)
    oauth = {key: value for key, value in change.items() if key != "mode"}
    async with source_of({}, crm=a_server(served, **oauth)) as source:
        with pytest.raises(ToolError, match=NEEDED) as raised:
            await call_tool_of(source, "crm_leak")
    assert (raised.value.kind, raised.value.acted) == (UNAVAILABLE, "no")


async def test_a_worker_takes_a_login_that_came_later(served: HttpServer) -> None:
    server = a_server(served)
    async with source_of({}, crm=server) as source:
        with pytest.raises(ToolError, match=NEEDED):
            await call_tool_of(source, "crm_leak")
        await logged_in(server)
        async with asyncio.timeout(20):
            while not await source.specs(["crm_leak"]):
                await asyncio.sleep(0.2)
        assert await call_tool_of(source, "crm_leak") == LEAKED


async def test_the_login_uses_the_configured_client_and_scope(served: HttpServer, tmp_path: Path) -> None:
    known = await logged_in(a_server(served, client_id=KNOWN_CLIENT, issuer=served.url.removesuffix("/mcp")))
    registered = await logged_in(a_server(served, scope="write"))
    assert known.client.client_id == KNOWN_CLIENT
    assert (registered.client.client_id == KNOWN_CLIENT, registered.tokens.scope) == (False, "write")


@pytest.mark.parametrize("methods", [SECRET_METHODS, SECRET_METHODS[:1], SECRET_METHODS[1:]])
async def test_a_client_with_a_secret_logs_in_and_refreshes(
    home: Path, tmp_path: Path, methods: tuple[str, ...]
) -> None:
    env = {"CRM_SECRET": SECRET}
    with with_logins(tmp_path, methods=methods) as served:
        issuer = served.url.removesuffix("/mcp")
        server = a_server(served, client_id=methods[0], secret_from="CRM_SECRET", issuer=issuer)
        await logged_in(server, env=env)
        let_expire(home)
        async with source_of(env, crm=server) as source:
            assert await call_tool_of(source, "crm_leak") == LEAKED
        with pytest.raises(OAuthFlowError, match="_client") as refused:
            await logged_in(server, env={"CRM_SECRET": "another"})
    assert "another" not in str(refused.value)
    assert issued(tmp_path) == ["login", "refresh"]
    assert SECRET not in login_file(home).read_text()


@pytest.mark.parametrize(
    ("oauth", "state", "problem"),
    [
        pytest.param({}, "forged", "State parameter mismatch", id="an answer to another request"),
        pytest.param({"issuer": "https://auth.example.org"}, None, "another authorization server", id="another issuer"),
    ],
)
async def test_a_login_that_is_led_astray_stores_nothing(
    served: HttpServer, home: Path, oauth: dict[str, Any], state: str | None, problem: str
) -> None:
    with pytest.raises(OAuthFlowError, match=problem):
        await logged_in(a_server(served, **oauth), state)
    assert not (home / "logins").exists()


PUBLIC = "https://93.184.216.34/mcp"


@pytest.mark.parametrize(
    ("url", "issuer", "address", "problem"),
    [
        (PUBLIC, None, "https://93.184.216.35/token", ""),
        (PUBLIC, None, "http://93.184.216.35/token", "without https"),
        (PUBLIC, None, "http://127.0.0.1:8080/token", "without https"),
        ("http://127.0.0.1:9000/mcp", None, "http://127.0.0.1:8080/token", ""),
        (PUBLIC, None, "https://10.0.0.1/token", "private network"),
        (PUBLIC, None, "https://169.254.169.254/token", "private network"),
        (PUBLIC, "https://10.0.0.1", "https://10.0.0.1/token", ""),
        (PUBLIC, "https://10.0.0.1", "https://10.0.0.2/token", ""),
        (PUBLIC, "https://93.184.216.35", "https://10.0.0.2/token", "private network"),
        ("https://10.0.0.2/mcp", None, "https://10.0.0.1/token", ""),
        (PUBLIC, None, "https://93.184.216.35:99999/token", "unusable"),
    ],
)
async def test_addresses_that_a_server_names_are_encrypted_and_public(
    url: str, issuer: str | None, address: str, problem: str
) -> None:
    (settings,) = settings_of({}, crm=McpServer(url=url, oauth=McpOAuth(login=True, issuer=issuer)))
    if problem:
        with pytest.raises(OAuthFlowError, match=problem):
            await check_address(address, settings)
    else:
        await check_address(address, settings)


@dataclass
class Hostile:
    """A server with its authorization server. `answers` replace those of a path."""

    answers: dict[str, tuple[int, bytes, dict[str, str]]]
    address_of_facts: str = "OWN/facts"
    delay_s: float = 0.0
    """Seconds before each piece of 100,000 bytes."""
    asked: list[str] = field(default_factory=list[str])

    @contextmanager
    def served(self) -> Generator[McpServer]:
        """Serve it, and yield its configuration."""
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                hostile.asked.append(self.path)
                own = f"http://{self.headers['host']}"
                status, body, headers = hostile.answers.get(self.path) or hostile.usual(
                    self.path, own, has_token="authorization" in self.headers
                )
                body = body.replace(b"OWN", own.encode())
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value.replace("OWN", own))
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                with suppress(OSError):
                    for at in range(0, len(body), 100_000):
                        time.sleep(hostile.delay_s)
                        self.wfile.write(body[at : at + 100_000])

            def do_POST(self) -> None:
                self.do_GET()

        with serving(Handler) as port:
            yield McpServer(url=f"http://127.0.0.1:{port}/mcp", oauth=McpOAuth(login=True))

    def usual(self, path: str, own: str, *, has_token: bool) -> tuple[int, bytes, dict[str, str]]:
        """Return an honest answer."""
        found = {
            "/facts": {"resource": f"{own}/mcp", "authorization_servers": [own]},
            "/.well-known/oauth-authorization-server": METADATA,
            "/register": {"client_id": "c1", "token_endpoint_auth_method": "none"},
            "/token": {"access_token": "tok-1", "refresh_token": "ref-1", "expires_in": 60},
        }
        if path in found or has_token:
            return 200, json.dumps(found.get(path)).encode(), {}
        return 401, b"", {"www-authenticate": f'Bearer resource_metadata="{self.address_of_facts}"'}


METADATA = {each: f"OWN/{each[:-9]}" for each in ("authorization_endpoint", "token_endpoint")} | {
    "issuer": "OWN",
    "registration_endpoint": "OWN/register",
}


def gives_token(body: bytes, status: int = 200) -> Hostile:
    return Hostile({"/token": (status, body, {})})


def gives_facts(body: bytes, headers: dict[str, str], delay_s: float = 0) -> Hostile:
    return Hostile({"/facts": (200, body, headers)}, delay_s=delay_s)


def with_endpoint(address: str) -> Hostile:
    metadata = METADATA | {"authorization_endpoint": address}
    return Hostile({"/.well-known/oauth-authorization-server": (200, json.dumps(metadata).encode(), {})})


@pytest.mark.parametrize(
    ("hostile", "problem"),
    [
        pytest.param(gives_facts(b"{" + b" " * 1_100_000, {}), "more than 1000000 bytes", id="endless facts"),
        pytest.param(gives_facts(b"x", {"content-encoding": "gzip"}), "compressed", id="facts of unknown size"),
        pytest.param(gives_facts(b" " * 900_000, {}, delay_s=0.1), "took more than", id="facts that never end"),
        pytest.param(Hostile({}, "https://a:b/"), "unusable", id="facts at no port"),
        pytest.param(Hostile({}, "http://127.0.0.1:99999/"), "unusable", id="facts at a port that is too large"),
        pytest.param(Hostile({}, "https://x/\x1b[31m"), "unusable", id="facts at an address with an escape"),
        pytest.param(with_endpoint("http://bank.example@127.0.0.1/"), "hides its host", id="a login that hides"),
        pytest.param(gives_token(b"\xff SECRET", 400), "something unusable", id="a refusal of odd bytes"),
        pytest.param(
            gives_token(b'{"error": "invalid_grant", "code_verifier": "SECRET"}', 400),
            r"HTTP status 400 \(invalid_grant\)",
            id="a refusal that shows the request",
        ),
        pytest.param(gives_token(b'{"refresh_token": "SECRET"}'), "no token: HTTP status 200", id="half a token"),
        pytest.param(gives_token('{"access_token": "SECRET-é"}'.encode()), "no header", id="a token that is no ASCII"),
        pytest.param(gives_token(b'{"access_token": ""}'), "no header", id="an empty token"),
        pytest.param(
            gives_token(b'{"access_token": "SECRET", "expires_in": %s}' % (b"9" * 400)), "unusable", id="a huge number"
        ),
    ],
)
async def test_whatever_a_server_answers_the_login_fails_with_one_clear_error(
    home: Path, hostile: Hostile, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_module, "REQUEST_S", 0.5 if hostile.delay_s else 10)
    with hostile.served() as server, pytest.raises(OAuthFlowError, match=problem) as raised:
        await logged_in_at_once(server)
    assert "SECRET" not in str(raised.value)
    assert not [*home.glob("logins/*.json")]


async def logged_in_at_once(server: McpServer) -> Login:
    """Log in with a code that the server does not check."""
    (settings,) = settings_of({}, crm=server)
    shown: list[str] = []

    async def show(address: str) -> None:
        shown.append(address)

    async def answer() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code="c", state=parse_qs(shown[0])["state"][0])

    return await log_in(settings, "http://127.0.0.1:1/callback", show, answer)


async def test_a_token_that_is_valid_for_ever_has_a_date() -> None:
    with gives_token(b'{"access_token": "tok-1", "expires_in": 9223372036854775807}').served() as server:
        login = await logged_in_at_once(server)
    assert datetime.fromtimestamp(login.expires_at or 0, UTC).year < 2100


@pytest.mark.parametrize(
    ("status", "body"),
    [pytest.param(503, b"", id="an error"), pytest.param(200, b" " * 1_100_000, id="an endless answer")],
)
async def test_calls_at_once_ask_once_for_a_token_that_nobody_gives(home: Path, status: int, body: bytes) -> None:
    hostile = Hostile({})
    with hostile.served() as server:
        await logged_in_at_once(server)
        let_expire(home)
        hostile.asked.clear()
        hostile.answers["/token"], hostile.delay_s = (status, body, {}), 0.05
        (settings,) = settings_of({}, crm=server)
        auth = EncryptedOnly(StoredLogin(settings), settings)
        async with httpx2.AsyncClient(auth=auth, trust_env=False) as client:
            found = await asyncio.gather(*(client.get(server.url or "") for _ in range(50)), return_exceptions=True)
    assert {type(each) for each in found} == {OAuthFlowError}
    assert hostile.asked == ["/token"]
