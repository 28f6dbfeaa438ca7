"""Requests of HTTP manifests with the secrets of their callers."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from orga.activities.adapters.caller_secrets import NO_CREDENTIALS
from orga.activities.adapters.tools.activity_tool import DeferredTool
from orga.activities.ports import ModelRequest, Tool, ToolContext, ToolError
from orga.testing import answers, calls
from orga.workflows.types.messages import Reply
from tests.support.runs.deferred import completion, waiting_calls
from tests.support.runs.loop import Ran, a_loop
from tests.support.runs.questions import send_update, tool_results_in
from tests.support.tools.manifests import a_manifest_tool, problems
from tests.support.web.echo import EchoServer, echo_server

SECRETS = {"acme": "acme-key/1+2", "globex": 'globex"key\\{x}', "*": "worker-key-3"}
MANIFEST = """
name = "orders"
description = "List orders."
effect = "read_only"
[http]
url = "HERE/orders"
headers = { Authorization = "Bearer {secret:KEYS[tenant]}", x-app = "{secret:APP}" }
"""


@pytest.fixture(name="server")
def a_server() -> Iterator[EchoServer]:
    with echo_server() as server:
        yield server


def orders(folder: Path, server: EchoServer, entries: object = SECRETS) -> Tool:
    """Return the tool with a file of these secrets."""
    (folder / "keys.json").write_text(json.dumps(entries))
    env = {"KEYS": str(folder / "keys.json"), "APP": "app-key-4"}
    return a_manifest_tool(folder, MANIFEST.replace("HERE", server.url), env, allow_hosts=["127.0.0.1"])


def has_secrets(ran: Ran) -> bool:
    """Return True if a history has a secret, plain or in JSON."""
    written = b"".join(event.SerializeToString() for each in ran.histories for event in each.events)
    forms = [form for secret in SECRETS.values() for form in (secret, json.dumps(secret)[1:-1])]
    return any(form.encode() in written for form in forms)


async def test_two_tenants_at_once_each_send_their_own_secret(
    client: Client, tmp_path: Path, server: EchoServer
) -> None:
    """The server returns the whole request, so the results would show the secrets."""

    def step(request: ModelRequest) -> Reply:
        return answers() if any(message.role == "tool" for message in request.messages) else calls("orders")

    async with a_loop(client, [step], orders(tmp_path, server)) as loop:
        handles = [await loop.start({"task": "do it", "tenant": tenant}) for tenant in ["acme", "globex"] * 5]
        ended = await asyncio.gather(*(loop.ended(handle) for handle in handles))
    sent = [request["headers"]["authorization"] for request in server.requests]
    assert [sent.count(f"Bearer {SECRETS[tenant]}") for tenant in ("acme", "globex")] == [5, 5]
    assert [each.result.tool_calls.run for each in ended] == [1] * 10
    assert not any(map(has_secrets, ended))


@pytest.mark.parametrize(
    "tenant",
    ["initech", "*", "ACME", "acme\r\nx-admin: 1", "../keys.json", "KEYS", "acme]", "{secret:APP}", "", None],
)
async def test_a_tenant_that_a_starter_made_up_gets_no_secret(
    client: Client, tmp_path: Path, server: EchoServer, tenant: str | None
) -> None:
    tool = orders(tmp_path, server)
    with pytest.raises(ToolError) as raised:
        await tool.call({}, ToolContext("c", "k", tenant=tenant or ""))
    assert (raised.value.kind, raised.value.retryable, raised.value.acted) == (NO_CREDENTIALS, False, "no")
    assert server.requests == []
    assert not [secret for secret in SECRETS.values() if secret in str(raised.value)]


async def test_a_run_without_a_secret_learns_why_and_goes_on(
    client: Client, tmp_path: Path, server: EchoServer
) -> None:
    async with a_loop(client, [calls("orders"), answers("done")], orders(tmp_path, server)) as loop:
        ran = await loop.run({"task": "do it", "tenant": "initech"})
    assert "KEYS has no secret for the tenant of this run; tell the operator" in tool_results_in(loop)[0]
    assert (ran.result.output, server.requests, has_secrets(ran)) == ("done", [], False)


async def test_the_start_of_a_deferred_tool_sends_the_secret_of_its_caller(
    client: Client, tmp_path: Path, server: EchoServer
) -> None:
    job = DeferredTool("job", start=orders(tmp_path, server))
    async with a_loop(client, [calls("job"), answers()], job) as loop:
        handle = await loop.start({"task": "do it", "tenant": "acme"})
        [wait] = await waiting_calls(handle, 1)
        await send_update(handle, "complete_tool_call", completion(wait))
        ran = await loop.ended(handle)
    assert [each["headers"]["authorization"] for each in server.requests] == [f"Bearer {SECRETS['acme']}"]
    assert not has_secrets(ran)


@pytest.mark.parametrize("entry", ["a\nb-key", " a-key", "", "schlüssel", 5, None, {"key": "a-key"}])
async def test_a_secret_that_no_header_can_hold_is_not_sent(tmp_path: Path, server: EchoServer, entry: object) -> None:
    tool = orders(tmp_path, server, {"acme": entry})
    with pytest.raises(ToolError, match="no line of printable ASCII") as raised:
        await tool.call({}, ToolContext("c", "k", tenant="acme"))
    assert (raised.value.kind, "key" in str(raised.value), server.requests) == (NO_CREDENTIALS, False, [])


@pytest.mark.parametrize(
    ("value", "content", "problem"),
    [
        pytest.param(None, "", "the environment has no KEYS", id="no variable"),
        pytest.param("keys.json", "{}", "the absolute path of a JSON file", id="a relative path"),
        pytest.param("PATH", None, "cannot be read: FileNotFoundError", id="no file"),
        pytest.param("PATH", "acme: s3cr3t", "is no JSON object", id="no JSON"),
        pytest.param("PATH", '["s3cr3t"]', "is no JSON object", id="a list"),
        pytest.param("PATH", "[" * 100_000, "is no JSON object", id="deep JSON"),
    ],
)
def test_a_worker_does_not_start_without_a_file_of_secrets(
    tmp_path: Path, value: str | None, content: str | None, problem: str
) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_text(content)
    env: dict[str, str] = {"APP": "app-key-4"} | ({} if value is None else {"KEYS": value.replace("PATH", str(path))})
    with pytest.raises(ValueError, match=problem) as raised:
        a_manifest_tool(tmp_path, MANIFEST.replace("HERE", "https://example.org"), env)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize(
    "slot", ["secret:K[user]", "secret:K[tenant.a]", "secret:K[trusted_context]", "secret:K[]", "K[tenant]"]
)
def test_only_facts_of_the_starter_select_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot: str) -> None:
    monkeypatch.chdir(tmp_path)
    text = MANIFEST.replace("HERE", "https://example.org").replace("secret:APP", slot)
    assert ["is no placeholder" in each for each in problems(text)] == [True]


def test_a_secret_by_caller_is_sent_only_with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = MANIFEST.replace("HERE", "http://example.org").replace("{secret:APP}", "plain")
    assert ["secrets would be sent in the clear" in each for each in problems(text)] == [True]
