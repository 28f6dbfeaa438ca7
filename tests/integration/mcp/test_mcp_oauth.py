"""Servers that want a token: the worker gets one as a client of its own, with a secret or a private key."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from temporalio.client import Client

from orga.activities.adapters.mcp.keeper import UNAVAILABLE
from orga.activities.ports import ToolError
from orga.testing import answers, calls
from orga.workflows.types.tool_calls.mcp import McpOAuth, McpServer
from tests.support.mcp.http_servers import HttpServer, with_clients
from tests.support.mcp.loop import an_mcp_loop
from tests.support.mcp.sources import call_tool_of, source_of
from tests.support.runs.questions import tool_results_in

SECRET = "cl1ent/secret+of:orga"
LEAKED = "Bearer [redacted]"


def a_server(served: HttpServer, **oauth: Any) -> McpServer:
    issuer = served.url.removesuffix("/mcp")
    given: dict[str, Any] = {
        "issuer": issuer,
        "client_id": "orga",
        **({} if "key_from" in oauth else {"secret_from": "S"}),
        **oauth,
    }
    return McpServer(url=served.url, oauth=McpOAuth(**given), connect_timeout_s=10)


def token_requests(folder: Path) -> list[dict[str, str]]:
    path = folder / "token_requests"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_secret_gets_a_token_that_no_history_has(client: Client, tmp_path: Path) -> None:
    with with_clients(tmp_path, secret=SECRET) as served:
        servers, env = {"crm": a_server(served)}, {"S": SECRET}
        async with an_mcp_loop(client, [calls("crm_leak"), answers()], servers, listed=["crm_*"], env=env) as loop:
            ran = await loop.run()
    assert tool_results_in(loop) == [LEAKED]
    written = b"".join(event.SerializeToString() for each in ran.histories for event in each.events)
    assert (b"tok-" in written, SECRET.encode() in written) == (False, False)
    assert [each["grant_type"] for each in token_requests(tmp_path)] == ["client_credentials"]


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_private_key_signs_the_request(tmp_path: Path, algorithm: str) -> None:
    key = generate_rsa_key(65537, 2048) if algorithm == "RS256" else generate_private_key(SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    with with_clients(tmp_path, key=public, algorithm=algorithm) as served:
        async with source_of({"K": pem}, crm=a_server(served, key_from="K")) as source:
            assert await call_tool_of(source, "crm_leak") == LEAKED
    assert all("client_secret" not in each for each in token_requests(tmp_path))


async def test_an_expired_token_is_replaced(tmp_path: Path) -> None:
    with with_clients(tmp_path, secret=SECRET, expires_in=1) as served:
        async with source_of({"S": SECRET}, crm=a_server(served)) as source:
            assert await call_tool_of(source, "crm_leak") == LEAKED
            before = len(token_requests(tmp_path))
            await asyncio.sleep(1.2)
            assert await call_tool_of(source, "crm_leak") == LEAKED
    assert len(token_requests(tmp_path)) > before


@pytest.mark.parametrize(
    ("oauth", "facts", "asked"),
    [
        pytest.param({}, {"secret": "another"}, True, id="a wrong secret"),
        pytest.param({"issuer": "https://auth.example.org"}, {}, False, id="a server that leads to another issuer"),
        pytest.param(
            {"issuer": "https://auth.example.org"},
            {"issuer": "https://auth.example.org"},
            False,
            id="a server that claims to be the issuer",
        ),
    ],
)
async def test_the_secret_goes_to_its_issuer_only(
    tmp_path: Path, oauth: dict[str, Any], facts: dict[str, Any], asked: bool
) -> None:
    with with_clients(tmp_path, **{"secret": SECRET, **facts}) as served:
        async with source_of({"S": SECRET}, crm=a_server(served, **oauth)) as source:
            absent = source.absent_tool("crm_leak")
            tool = source.tool("crm_leak", "")
            assert absent is not None
            assert tool is not None
            with pytest.raises(ToolError) as raised:
                await call_tool_of(source, "crm_leak")
    assert (absent.is_temporary, raised.value.kind, SECRET in absent.why) == (True, UNAVAILABLE, False)
    assert bool(token_requests(tmp_path)) == asked
