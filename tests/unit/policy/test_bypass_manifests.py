"""The corpus of values that try to leave their place in a manifest. None has a forbidden effect."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from tests.support.tools.calls import failure, result
from tests.support.tools.manifests import a_manifest_tool
from tests.support.values.corpora import Case, cases, filled
from tests.support.web.echo import EchoServer, echo_server

PLANTED = {"PLANTED": "planted-secret"}
SHOW = """
arguments.value = {{ type = "string" }}
[command]
argv = ["{python}", "-ISc", "import json, sys; print(json.dumps(sys.argv[1:]))", "--value", "{{value}}", "end"]
"""
REQUEST = """
arguments.value = {{ type = "string" }}
[http]
url = "{url}/api/{{value}}/tail"
query = {{ q = "{{value}}" }}
"""


@pytest.fixture(name="server", scope="module")
def a_server() -> Iterator[EchoServer]:
    with echo_server() as server:
        yield server


def value_of(case: Case, tmp_path: Path) -> str:
    return filled(case["value"], canary=str(tmp_path / "canary"))


@pytest.mark.parametrize("case", cases("manifests", "refused"))
async def test_a_value_that_could_become_a_flag_or_a_line_does_not_start_the_command(
    tmp_path: Path, case: Case
) -> None:
    tool = a_manifest_tool(tmp_path, SHOW.format(python=sys.executable))
    error = await failure(tool, value=value_of(case, tmp_path))
    assert (error.kind, error.retryable) == ("InvalidArguments", False)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("case", cases("manifests", "literal"))
async def test_a_value_is_one_unchanged_argument(tmp_path: Path, case: Case) -> None:
    tool = a_manifest_tool(tmp_path, SHOW.format(python=sys.executable), PLANTED)
    value = value_of(case, tmp_path)
    assert json.loads(await result(tool, value=value)) == ["--value", value, "end"]
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("case", cases("manifests", "path"))
async def test_no_value_leaves_its_segment_of_a_path(tmp_path: Path, server: EchoServer, case: Case) -> None:
    before = len(server.requests)
    tool = a_manifest_tool(tmp_path, REQUEST.format(url=server.url), allow_hosts=["127.0.0.1"])
    assert (await failure(tool, value=case["value"])).kind == "InvalidArguments"
    assert len(server.requests) == before


@pytest.mark.parametrize("case", cases("manifests", "encoded"))
async def test_a_value_is_one_segment_of_the_path_and_one_of_the_query(
    tmp_path: Path, server: EchoServer, case: Case
) -> None:
    tool = a_manifest_tool(tmp_path, REQUEST.format(url=server.url), allow_hosts=["127.0.0.1"])
    asked: dict[str, Any] = json.loads(await result(tool, value=case["value"]))
    url = urlsplit(str(asked["path"]))
    assert [unquote(part) for part in url.path.split("/")] == ["", "api", case["value"], "tail"]
    assert parse_qsl(url.query) == [("q", case["value"])]
    assert asked["headers"]["host"] == f"127.0.0.1:{server.port}"


@pytest.mark.parametrize("case", cases("manifests", "header"))
async def test_no_value_ends_its_header(tmp_path: Path, server: EchoServer, case: Case) -> None:
    before = len(server.requests)
    text = f"""
    arguments.value = {{ type = "string", multiline = true }}
    [http]
    url = "{server.url}/"
    headers = {{ x-value = "{{value}}" }}
    """
    tool = a_manifest_tool(tmp_path, text, allow_hosts=["127.0.0.1"])
    assert (await failure(tool, value=case["value"])).kind == "InvalidArguments"
    assert len(server.requests) == before


@pytest.mark.parametrize("case", cases("manifests", "url"))
async def test_a_whole_url_is_not_fetched_from_a_private_address(
    tmp_path: Path, server: EchoServer, case: Case
) -> None:
    before = len(server.requests)
    tool = a_manifest_tool(tmp_path, 'arguments.url = { type = "url" }\n[http]\nurl = "{url}"')
    error = await failure(tool, url=filled(case["value"], port=str(server.port)))
    assert error.kind in {"AddressRefused", "InvalidArguments", "ConnectionFailed"}
    assert len(server.requests) == before
