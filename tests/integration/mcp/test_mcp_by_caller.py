"""Calls of MCP tools with the credentials of their callers, on real servers: nobody gets those of another."""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.adapters.caller_secrets import NO_CREDENTIALS
from orga.activities.adapters.mcp import servers as mcp_servers
from orga.activities.adapters.mcp.servers import McpServers
from orga.activities.ports import ToolContext, ToolError
from orga.testing import answers, calls
from orga.workflows.types.tool_calls.mcp import McpServer
from tests.support.mcp.http_servers import per_user
from tests.support.mcp.loop import an_mcp_loop
from tests.support.mcp.sources import call_tool_of, source_of
from tests.support.runs.questions import tool_results_in

ADA, BOB, WORKER = "ada-tok/en+1:~", "bob-token-22", "list-token-33"


@dataclass
class Crm:
    """A server, the file of its callers' secrets, and the requests that it got."""

    url: str
    secrets: Path
    folder: Path

    def set_secrets(self, **entries: object) -> None:
        """Replace the file at once, as a rotation does."""
        new = self.secrets.with_suffix(".new")
        new.write_text(json.dumps(entries))
        new.rename(self.secrets)

    def allow(self, *tokens: str) -> None:
        (self.folder / "tokens.json").write_text(json.dumps([f"Bearer {token}" for token in tokens]))

    @property
    def tokens_by_connection(self) -> dict[int, set[str]]:
        """The values of `Authorization` that came over each connection."""
        found: dict[int, set[str]] = {}
        for line in (self.folder / "requests").read_text().splitlines():
            connection, token = json.loads(line)
            found.setdefault(connection, set()).add(token)
        return found

    @property
    def env(self) -> dict[str, str]:
        return {"CRM_TOKENS": str(self.secrets)}

    def server(self, source: str = "trusted_context.user") -> McpServer:
        return McpServer(url=self.url, bearer_from=f"CRM_TOKENS[{source}]")


@pytest.fixture(name="crm")
def a_crm(tmp_path: Path) -> Generator[Crm]:
    with per_user(tmp_path, *(f"Bearer {token}" for token in (ADA, BOB, WORKER))) as server:
        crm = Crm(server.url, tmp_path / "secrets.json", tmp_path)
        crm.set_secrets(**{"ada": ADA, "bob": BOB, "*": WORKER})
        yield crm


def by(user: Any = None, tenant: str = "", **more: Any) -> ToolContext:
    """Return a call of this user."""
    return ToolContext("c1", "key-1", tenant=tenant, trusted_context={} if user is None else {"user": user}, **more)


@asynccontextmanager
async def entered(crm: Crm, source: str = "trusted_context.user") -> AsyncGenerator[McpServers]:
    async with source_of(crm.env, crm=crm.server(source)) as servers:
        yield servers


async def failure(source: McpServers, context: ToolContext) -> ToolError:
    with pytest.raises(ToolError) as raised:
        await call_tool_of(source, "crm_add_note", context, text="x")
    return raised.value


async def test_callers_at_once_each_have_a_connection_and_a_secret_of_their_own(crm: Crm) -> None:
    async with entered(crm) as source:
        many = [
            call_tool_of(source, "crm_add_note", by(user), text=f"{user}-{n}")
            for n in range(20)
            for user in ("ada", "bob")
        ]
        found = await asyncio.gather(*many)
    assert found == [f"{user}-{n} of {user == 'bob':d}" for n in range(20) for user in ("ada", "bob")]
    used = crm.tokens_by_connection.values()
    assert all(len(tokens) == 1 for tokens in used)
    assert set[str].union(*used) == {f"Bearer {token}" for token in (ADA, BOB, WORKER)}


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        pytest.param(None, "the run has no such text", id="no user"),
        pytest.param("", "the run has no such text", id="an empty user"),
        pytest.param(["ada"], "the run has no such text", id="a list"),
        pytest.param({"name": "ada"}, "the run has no such text", id="an object"),
        pytest.param(7, "the run has no such text", id="a number"),
        pytest.param("eve", "no secret for the trusted_context.user of this run", id="an unknown user"),
        pytest.param("*", "no secret for the trusted_context.user of this run", id="the worker's own entry"),
        pytest.param("Ada", "no secret for the trusted_context.user of this run", id="another spelling"),
        pytest.param("../secrets.json", "no secret for the trusted_context.user of this run", id="a path"),
        pytest.param("CRM_TOKENS", "no secret for the trusted_context.user of this run", id="a variable"),
        pytest.param("ada\r\nx-admin: 1", "no secret for the trusted_context.user of this run", id="a header"),
    ],
)
async def test_a_caller_without_a_secret_is_refused_before_anything_is_sent(
    crm: Crm, user: object, problem: str
) -> None:
    async with entered(crm) as source:
        await source.specs(["crm_*"])
        before = (crm.folder / "requests").read_text()
        error = await failure(source, by(user))
        assert (crm.folder / "requests").read_text() == before
    assert problem in str(error)
    assert (error.kind, error.retryable, error.acted) == (NO_CREDENTIALS, False, "no")


@pytest.mark.parametrize("entry", ["", " ada-token", "ada\ntoken", "ada\r\nx-admin: 1", "grüße-token", 7, None, ["x"]])
async def test_a_secret_that_no_header_can_hold_stops_only_its_owner(crm: Crm, entry: object) -> None:
    crm.set_secrets(**{"ada": entry, "bob": BOB, "*": WORKER})
    async with entered(crm) as source:
        error = await failure(source, by("ada"))
        assert "b" in await call_tool_of(source, "crm_add_note", by("bob"), text="b")
    assert ("printable ASCII" in str(error), error.kind) == (True, NO_CREDENTIALS)
    assert "token" not in str(error)


async def test_a_secret_can_be_replaced_while_the_worker_runs(crm: Crm) -> None:
    async with entered(crm) as source:
        assert await call_tool_of(source, "crm_add_note", by("ada"), text="one") == "one of 0"
        crm.allow(BOB, WORKER, "ada-token-new")
        crm.set_secrets(**{"ada": "ada-token-new", "bob": BOB, "*": WORKER})
        assert await call_tool_of(source, "crm_add_note", by("ada"), text="two") == "two of 2"
        crm.secrets.write_text("{ half of it")
        error = await failure(source, by("ada"))
    assert (error.kind, error.retryable, "half" in str(error)) == (NO_CREDENTIALS, True, False)
    assert all(len(tokens) == 1 for tokens in crm.tokens_by_connection.values())


async def test_a_revoked_secret_fails_and_lists_nothing_for_others(crm: Crm) -> None:
    crm.allow(BOB, WORKER)
    async with entered(crm) as source:
        error = await failure(source, by("ada"))
        assert "b" in await call_tool_of(source, "crm_add_note", by("bob"), text="b")
    assert ("401" in str(error), ADA in str(error)) == (True, False)


async def test_idle_connections_of_callers_are_closed(crm: Crm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_servers, "IDLE_S", 0.2)
    async with entered(crm) as source:
        await call_tool_of(source, "crm_add_note", by("ada"), text="one")
        first = {*crm.tokens_by_connection}
        await asyncio.sleep(1)
        await call_tool_of(source, "crm_add_note", by("ada"), text="two")
        last = (crm.folder / "requests").read_text().splitlines()[-1]
    assert json.loads(last)[0] not in first


async def test_a_call_keeps_its_connection_however_many_others_are_idle(
    crm: Crm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_servers, "MAX_IDLE", 0)
    async with entered(crm) as source:
        found = await asyncio.gather(
            *(call_tool_of(source, "crm_add_note", by(user), text="x") for user in ("ada", "bob") * 5)
        )
    assert len(found) == 10


@pytest.mark.parametrize("how", ["result", "error", "progress"])
async def test_no_history_has_the_secret_that_a_server_shows(client: Client, crm: Crm, how: str) -> None:
    script = [calls("crm_leak", arguments={"how": how}), answers()] * 2
    servers = {"crm": crm.server("tenant")}
    crm.set_secrets(**{"acme": ADA, "*": WORKER})
    async with an_mcp_loop(client, script, servers, listed=["crm_*"], env=crm.env) as loop:
        ran = await loop.run({"task": "do it", "tenant": "acme"})
        refused = await loop.run({"task": "do it", "tenant": "globex"})
    results = [text for request in (1, 3) for text in tool_results_in(loop, request)]
    assert ("[redacted]" in results[0], NO_CREDENTIALS in results[1]) == (how != "progress", True)
    for each in (ran, refused):
        for history in each.histories:
            for event in history.events:
                written = event.SerializeToString()
                assert not [token for token in (ADA, BOB, WORKER) if token.encode() in written]
    assert (ran.result.tool_calls.failed, refused.result.tool_calls.failed) == (how == "error", 1)
