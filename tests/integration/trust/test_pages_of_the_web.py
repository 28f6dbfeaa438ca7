"""A page in a browser can do nothing against the ports of the embedded server.

A browser speaks HTTP/1.1, sets `Host`, `Origin` and `Sec-Fetch-Site` itself, and lets any page send requests to any
port of this machine. Each request here is one that a browser would send.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
import pytest
from temporalio.client import Client

from orga.client.errors import ServerUnavailable
from orga.client.server.embedded import ensure_server, stop_embedded_server
from orga.client.server.endpoint import Endpoint, ServerRecord, read_record
from orga.client.server.home import server_home
from tests.support.parts.temporal import temporal_cli

RUN = "agent-the-run-of-a-person"
KIND = "WhatThePersonStarted"

LISTED = "/api/v1/namespaces/default/workflows"
SIGNAL = f"{LISTED}/{RUN}/signal/approve"
TERMINATE = f"{LISTED}/{RUN}/terminate"
NEXUS = "/namespaces/default/task-queues/nobody/nexus-services/any/any"

PAGE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
REBOUND = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
NEIGHBOUR = {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}
OPAQUE = {"Origin": "null", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
OLD_BROWSER = {"Origin": "https://evil.example"}

NO_HEADERS: dict[str, str] = {}

READING = {
    "a rebound name": ("evil.example:{port}", REBOUND),
    "a rebound name without a port": ("evil.example", REBOUND),
    "a rebound name in an old browser": ("evil.example:{port}", NO_HEADERS),
    "a name that begins like ours": ("127.0.0.1.evil.example:{port}", REBOUND),
    "a port that is a name": ("127.0.0.1:{port}.evil.example", REBOUND),
    "a name with a user": ("localhost:{port}@evil.example", REBOUND),
    "a name with a dot at its end": ("localhost.:{port}", REBOUND),
    "the address of all interfaces": ("0.0.0.0:{port}", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}),
    "a script of another page": ("127.0.0.1:{port}", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}),
    "a server of this machine": ("localhost:{port}", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}),
}

WRITING = {
    "a page": ("127.0.0.1:{port}", PAGE),
    "a rebound page": ("evil.example:{port}", {"Origin": "http://evil.example:{port}", **REBOUND}),
    "another server of this machine": ("localhost:{port}", NEIGHBOUR),
    "a form in a sandboxed frame": ("localhost:{port}", OPAQUE),
    "a page in an old browser": ("127.0.0.1:{port}", OLD_BROWSER),
    "a browser that names no origin": ("127.0.0.1:{port}", NO_HEADERS),
}


@pytest.fixture(scope="module")
def executable() -> Path:
    return temporal_cli()


@pytest.fixture(scope="module")
async def server(executable: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Endpoint]:
    """An embedded server with a run, whose UI has been opened."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORGA_HOME", str(tmp_path_factory.mktemp("pages") / "home"))
        patch.setenv("ORGA_TEMPORAL_CLI", str(executable))
        endpoint = await ensure_server(lambda _: None)
        client = await Client.connect(endpoint.address)
        await client.start_workflow(KIND, id=RUN, task_queue="nobody")
        assert " 200 OK" in await browser_request(ui_port(endpoint), "GET", f"/namespaces/default/workflows/{RUN}", {})
        yield endpoint
        stop_embedded_server()


async def browser_request(
    port: int, method: str, path: str, headers: dict[str, str], body: str = "", host: str = ""
) -> str:
    """Send what a browser would send, and return the whole response, or "" if the connection is closed."""
    sent = {"Host": host or f"127.0.0.1:{port}", **headers, "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write("\r\n".join([*lines, "", body]).replace("{port}", str(port)).encode())
        async with asyncio.timeout(20):
            return (await reader.read()).decode(errors="replace")
    except ConnectionResetError:
        return ""
    finally:
        writer.close()


def ui_port(endpoint: Endpoint) -> int:
    assert endpoint.ui is not None
    return int(endpoint.ui.rpartition(":")[2])


def recorded() -> ServerRecord:
    record = read_record(server_home().record)
    assert record is not None
    return record


def processes() -> list[psutil.Process]:
    """Return the supervisor and all processes that it has started."""
    supervisor = psutil.Process(recorded().pid).parent()
    assert supervisor is not None
    return [supervisor, *supervisor.children(recursive=True)]


def all_ports() -> list[int]:
    """Return every port on which these processes listen."""
    connections = [each for process in processes() for each in process.net_connections("tcp")]
    found = [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN]
    assert {recorded().port, recorded().ui_port} < set(found)
    return found


async def events(endpoint: Endpoint) -> int:
    described = await (await Client.connect(endpoint.address)).get_workflow_handle(RUN).describe()
    return described.history_length


@pytest.mark.parametrize(("host", "headers"), READING.values(), ids=READING)
async def test_no_page_reads_a_run_on_any_port(server: Endpoint, host: str, headers: dict[str, str]) -> None:
    for port in all_ports():
        for path in (LISTED, f"{LISTED}/{RUN}/history", f"/namespaces/default/workflows/{RUN}", "/metrics"):
            assert KIND not in await browser_request(port, "GET", path, headers, host=host), port


@pytest.mark.parametrize(("host", "headers"), WRITING.values(), ids=WRITING)
async def test_no_page_changes_a_run_on_any_port(server: Endpoint, host: str, headers: dict[str, str]) -> None:
    before = await events(server)
    for port in all_ports():
        for path in (SIGNAL, TERMINATE):
            await browser_request(port, "POST", path, {**headers, "Content-Type": "text/plain"}, "{}", host=host)
        answer = await browser_request(port, "POST", NEXUS, {**headers, "Content-Type": "text/plain"}, "{}", host=host)
        assert not answer or " 40" in answer.partition("\n")[0], "no worker may be queried"
    assert await events(server) == before


async def test_a_preflight_is_not_answered(server: Endpoint) -> None:
    asks = {**PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    for port in all_ports():
        answer = await browser_request(port, "OPTIONS", SIGNAL, asks)
        assert "access-control-allow" not in answer.lower(), port


async def test_the_server_port_rejects_the_http_of_a_browser(server: Endpoint) -> None:
    """Its protocol starts with a preface of HTTP/2 that browsers send only over TLS, and it reads nothing else."""
    port = int(server.address.rpartition(":")[2])
    preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for body in ("{}", preface):
        kind = {"Content-Type": "application/grpc"}
        path = "/temporal.api.workflowservice.v1.WorkflowService/ListNamespaces"
        assert "default" not in await browser_request(port, "POST", path, {**PAGE, **kind}, body)


async def test_the_ui_shows_a_run_and_its_buttons_work(server: Endpoint) -> None:
    port = ui_port(server)
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost:9000"):
        own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
        answer = await browser_request(port, "GET", f"{LISTED}/{RUN}", own, host=host)
        head, _, body = answer.partition("\r\n\r\n")
        assert " 200 OK" in head
        assert json.loads(body)["workflowExecutionInfo"]["type"] == {"name": KIND}
        before = await events(server)
        asks = {**own, "Origin": f"http://{host}", "Content-Type": "application/json"}
        assert " 200 OK" in await browser_request(port, "POST", f"{LISTED}/{RUN}/signal/steer", asks, "{}", host=host)
        assert await events(server) > before
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert " 200 OK" in await browser_request(port, "GET", f"/namespaces/default/workflows/{RUN}", visit), (
        "a link in a mail"
    )
    framed = visit | {"Sec-Fetch-Dest": "iframe"}
    assert " 403 Forbidden" in await browser_request(port, "GET", f"/namespaces/default/workflows/{RUN}", framed)


async def test_the_ui_works_again_after_its_web_server_has_died(server: Endpoint) -> None:
    [pages] = {each.pid for each in processes() if each.name() == "temporal"} - {recorded().pid}
    psutil.Process(pages).kill()
    assert " 200 OK" in await browser_request(ui_port(server), "GET", "/", {})


def without(flag: str, executable: Path, folder: Path) -> Path:
    """Return a `temporal` that does not know this setting, as an old version."""
    old = folder / "temporal"
    lines = (
        "#!/bin/bash",
        "kept=()",
        f'for each in "$@"; do [[ $each == {flag}* ]] && each=a.b=1; kept+=("$each"); done',
        f'exec {executable} "${{kept[@]}}"',
    )
    old.write_text("\n".join(lines))
    old.chmod(0o755)
    return old


async def test_a_server_that_would_obey_pages_is_not_used(
    executable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    old = without("frontend.httpAllowedHosts", executable, tmp_path)
    monkeypatch.setenv("ORGA_TEMPORAL_CLI", str(old))
    with pytest.raises(ServerUnavailable, match=r"temporal is too old .*would obey any web page\. Install"):
        await ensure_server(lambda _: None)
