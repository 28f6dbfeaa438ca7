"""Requests of manifests to a local server: what is sent, and how the answers are used."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.manifests.manifest import Http, Manifest, ManifestSecrets
from orga.activities.adapters.manifests.tool import build_request
from orga.activities.ports import Tool, ToolError
from tests.support.tools.calls import failure, result
from tests.support.tools.manifests import a_manifest_tool
from tests.support.web.echo import EchoServer, echo_server

TOKEN = "t0ken-of-the-worker"
TWO = """
[arguments]
name = { type = "string" }
limit = { type = "integer", required = false }
"""
SENT = """
[arguments]
id = { type = "integer" }
tags = { type = "array", items = { type = "string" }, required = false }
note = { type = "string", required = false }
"""


@pytest.fixture(name="server", scope="module")
def a_server() -> Iterator[EchoServer]:
    with echo_server() as server:
        yield server


@pytest.fixture(name="other", scope="module")
def another_server() -> Iterator[EchoServer]:
    with echo_server() as server:
        yield server


def a_tool(root: Path, server: EchoServer, text: str, env: dict[str, str] | None = None, head: str = "") -> Tool:
    """Return a tool with the URL of the server in place of `HERE`."""
    named = f'name = "tool"\ndescription = "A tool."\n{head}\n{text}' if head else text
    return a_manifest_tool(root, named.replace("HERE", server.url), env, allow_hosts=["127.0.0.1"])


async def asked(tool: Tool, **arguments: object) -> dict[str, Any]:
    return json.loads(await result(tool, **arguments))


@pytest.mark.parametrize(
    ("given", "path"),
    [
        pytest.param({"name": "a"}, "/p/a?x=1", id="without an optional argument"),
        pytest.param({"name": "a b", "limit": 5}, "/p/a%20b?x=1&limit=5", id="with all arguments"),
    ],
)
async def test_values_are_encoded_in_path_and_query(
    tmp_path: Path, server: EchoServer, given: dict[str, Any], path: str
) -> None:
    text = f'{TWO}\n[http]\nurl = "HERE/p/{{name}}?x=1"\nquery = {{ limit = "{{limit}}" }}'
    found = await asked(a_tool(tmp_path, server, text), **given)
    assert (found["method"], found["path"], found["body"]) == ("GET", path, "")


@pytest.mark.parametrize("name", ["..", ".", "a/../b", "%2e%2e", "..;a", "a/..;x=1/b", "%2e%2e%3ba"])
async def test_no_value_changes_to_a_parent_path(tmp_path: Path, server: EchoServer, name: str) -> None:
    tool = a_tool(tmp_path, server, '[arguments]\nname = { type = "string" }\n[http]\nurl = "HERE/p/{name}/x"')
    error = await failure(tool, name=name)
    assert (error.kind, "`..`" in str(error)) == ("InvalidArguments", True)


@pytest.mark.parametrize("value", [".", ";a", "%2e", "%3Ba", ".;a"])
def test_no_value_completes_a_dot_segment(value: str) -> None:
    with pytest.raises(ToolError) as refused:
        build_request(Http(url="https://h/api/.{v}/x"), {"v": value}, ManifestSecrets())
    assert refused.value.kind == "InvalidArguments"


def test_a_semicolon_elsewhere_in_a_segment_is_allowed() -> None:
    asked = build_request(Http(url="https://h/api/{v}/x"), {"v": "a;.."}, ManifestSecrets())
    assert str(asked.url) == "https://h/api/a%3B../x"


async def test_a_list_is_repeated_in_the_query(tmp_path: Path, server: EchoServer) -> None:
    text = """
    arguments.tags = { type = "array", items = { type = "string" } }
    [http]
    url = "HERE/"
    query = { tag = "{tags}" }
    """
    assert (await asked(a_tool(tmp_path, server, text), tags=["a", "b&c"]))["path"] == "/?tag=a&tag=b%26c"


@pytest.mark.parametrize(
    ("body", "given", "kind", "expected"),
    [
        pytest.param(
            'json = { id = "{id}", tags = "{tags}", text = "no. {id}" }', {"id": 7, "tags": ['"']},
            "application/json", '{"id": 7, "tags": ["\\""], "text": "no. 7"}', id="JSON with true types",
        ),
        pytest.param(
            'json = [{ id = "{id}" }, "{tags}", { note = "{note}" }]', {"id": 7}, "application/json", '[{"id": 7}, {}]',
            id="JSON without omitted arguments",
        ),
        pytest.param(
            'form = { id = "{id}", note = "{note}" }', {"id": 7, "note": "a&b=c"},
            "application/x-www-form-urlencoded", "id=7&note=a%26b%3Dc", id="a form",
        ),
        pytest.param('text = "id {id}"', {"id": 7}, "text/plain; charset=utf-8", "id 7", id="a text"),
    ],
)  # fmt: skip
async def test_a_body_is_built_from_its_parts(
    tmp_path: Path, server: EchoServer, body: str, given: dict[str, Any], kind: str, expected: str
) -> None:
    query = 'query = { id = "{id}", tags = "{tags}", note = "{note}" }'
    text = f'{SENT}\n[http]\nmethod = "POST"\nurl = "HERE/"\n{query}\n{body}'
    found = await asked(a_tool(tmp_path, server, text), **given)
    assert (found["method"], found["headers"]["content-type"], found["body"]) == ("POST", kind, expected)
    assert found["headers"]["idempotency-key"] == "k1"


async def test_a_secret_is_sent_only_in_its_header(tmp_path: Path, server: EchoServer) -> None:
    text = '[http]\nurl = "HERE/"\nheaders = { Authorization = "Bearer {secret:API_TOKEN}" }'
    tool = a_tool(tmp_path, server, text, {"API_TOKEN": TOKEN})
    output = await result(tool)
    assert server.requests[-1]["headers"]["authorization"] == f"Bearer {TOKEN}"
    assert "Bearer [redacted]" in output
    assert TOKEN not in output + repr(tool.spec)


async def test_an_error_contains_no_secret(tmp_path: Path, server: EchoServer) -> None:
    text = '[http]\nurl = "HERE/status/403"\nheaders = { x-key = "{secret:API_TOKEN}" }'
    error = await failure(a_tool(tmp_path, server, text, {"API_TOKEN": TOKEN}))
    assert server.requests[-1]["headers"]["x-key"] == TOKEN
    assert (error.kind, "[redacted]" in str(error), TOKEN in str(error)) == ("Http403", True, False)


def test_the_repr_of_a_request_shows_no_header() -> None:
    manifest = Manifest.model_validate(
        {"name": "a", "description": "b", "http": {"url": "https://h/", "headers": {"a": "{secret:T}"}}}
    )
    assert manifest.http is not None
    request = build_request(manifest.http, {}, ManifestSecrets({"T": TOKEN}))
    assert request.secret_headers == {"a": TOKEN}
    assert TOKEN not in repr(request) + repr(ManifestSecrets({"T": TOKEN}))


async def test_another_host_gets_no_secret(tmp_path: Path, server: EchoServer, other: EchoServer) -> None:
    text = f"""
    [http]
    url = "HERE/to?{other.url}/there"
    headers = {{ x-key = "{{secret:API_TOKEN}}", x-plain = "1" }}
    """
    await result(a_tool(tmp_path, server, text, {"API_TOKEN": TOKEN}))
    there = other.requests[-1]
    assert (there["path"], there["headers"]["x-plain"], "x-key" in there["headers"]) == ("/there", "1", False)


async def test_the_same_host_gets_the_secret_after_a_redirect(tmp_path: Path, server: EchoServer) -> None:
    text = '[http]\nurl = "HERE/to?/there"\nheaders = { x-key = "{secret:API_TOKEN}" }'
    await result(a_tool(tmp_path, server, text, {"API_TOKEN": TOKEN}))
    assert (server.requests[-1]["path"], server.requests[-1]["headers"]["x-key"]) == ("/there", TOKEN)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param('url = "HERE/to?http://localhost:1/"', "AddressRefused", id="to a host that is not allowed"),
        pytest.param('url = "HERE/to?file:///etc/passwd"', "Redirected", id="to a file"),
        pytest.param('url = "HERE/to?http://u:p@h/"', "Redirected", id="to a URL with a password"),
        pytest.param('url = "HERE/to?/to?/to?/to?/to?/to?/to?/x"', "TooManyRedirects", id="too many times"),
        pytest.param('method = "POST"\nurl = "HERE/to?/there"\ntext = "x"', "Redirected", id="of a changing request"),
    ],
)
async def test_an_unsafe_redirect_is_not_followed(tmp_path: Path, server: EchoServer, text: str, kind: str) -> None:
    error = await failure(a_tool(tmp_path, server, f"[http]\n{text}"))
    assert (error.kind, error.retryable) == (kind, False)
    assert server.requests[-1]["path"] != "/there"


async def test_a_refused_redirect_shows_why_in_a_sentence(tmp_path: Path, server: EchoServer) -> None:
    error = await failure(a_tool(tmp_path, server, '[http]\nurl = "HERE/to?file:///etc/passwd"'))
    assert "redirects to an address that cannot be used: its scheme is file; write one with http" in str(error)


async def test_a_private_host_needs_the_operators_permission(tmp_path: Path, server: EchoServer) -> None:
    before = len(server.requests)
    error = await failure(a_manifest_tool(tmp_path, f'[http]\nurl = "{server.url}/"'))
    assert (error.kind, len(server.requests)) == ("AddressRefused", before)


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        pytest.param(404, False, id="not found"),
        pytest.param(429, True, id="too many requests"),
        pytest.param(503, True, id="unavailable"),
    ],
)
async def test_a_status_is_an_error(tmp_path: Path, server: EchoServer, status: int, retryable: bool) -> None:
    error = await failure(a_tool(tmp_path, server, f'[http]\nurl = "HERE/status/{status}"'))
    assert (error.kind, error.retryable) == (f"Http{status}", retryable)


async def test_a_silent_server_times_out(tmp_path: Path, server: EchoServer) -> None:
    error = await failure(a_tool(tmp_path, server, '[http]\nurl = "HERE/hang"', head="timeout_s = 0.3"))
    assert (error.kind, error.retryable, "0.3 s" in str(error)) == ("TimeLimit", True, True)


async def test_an_unreachable_server_is_retryable(tmp_path: Path) -> None:
    with echo_server() as gone:
        url = gone.url
    error = await failure(a_manifest_tool(tmp_path, f'[http]\nurl = "{url}/"', allow_hosts=["127.0.0.1"]))
    assert (error.kind, error.retryable) == ("ConnectionFailed", True)


@pytest.mark.parametrize(
    ("argument", "output", "expected"),
    [
        pytest.param("[1]", 'parser = "json"', "[1]", id="JSON"),
        pytest.param("x" * 1_500, "", "x" * 1_000 + "\n[cut after 1,000 bytes]", id="over the limit"),
        pytest.param(
            "1", 'parser = "json"\nschema = { type = "string" }',
            '[Warning] the output does not fit its schema: $: 1 is not of type "string"\n1', id="invalid",
        ),
    ],
)  # fmt: skip
async def test_an_answer_is_parsed_like_an_output(
    tmp_path: Path, server: EchoServer, argument: str, output: str, expected: str
) -> None:
    text = f'[http]\nurl = "HERE/raw?{argument}"\nmax_body_bytes = 1_000\n[output]\n{output}'
    assert await result(a_tool(tmp_path, server, text)) == expected


async def test_a_whole_url_can_be_an_argument(tmp_path: Path, server: EchoServer) -> None:
    text = 'arguments.url = { type = "url" }\n[http]\nurl = "{url}"'
    assert (await asked(a_tool(tmp_path, server, text), url=f"{server.url}/a?b=1&c=2"))["path"] == "/a?b=1&c=2"
