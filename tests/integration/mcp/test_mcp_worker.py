"""The guide's servers in a worker process: connected at its start, and gone at its end."""

import re
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orga.client.config.sections import OrgaConfig
from tests.support.hold import wait_until
from tests.support.mcp.sources import hostile
from tests.support.parts.mcp_servers import python_program
from tests.support.programs.orga_command import ROOT, Orga, an_orga
from tests.support.programs.processes import is_running, wait_for_pids


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    command = an_orga(tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("home"))
    yield command
    command("server", "--stop")


@pytest.fixture
def guide() -> str:
    """The example of the guide, with the path of the installed program."""
    block, *_ = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs" / "mcp.md").read_text(), re.DOTALL | re.MULTILINE)
    return block.replace('"mcp-server-time"', f'"{python_program("mcp-server-time")}"')


def written(server: Any) -> str:
    """Return a server as it is written in `orga.toml`."""
    return f"[mcp.servers.s]\ncommand = {server.command!r}\nargs = {list(server.args)!r}\n"


def test_the_example_of_the_guide_is_a_valid_config(guide: str) -> None:
    config = OrgaConfig.model_validate(tomllib.loads(guide), extra="forbid")
    assert set(config.mcp.servers) == {"time", "github"}


def test_doctor_reports_a_missing_secret(orga: Orga, guide: str) -> None:
    (orga.folder / "orga.toml").write_text(guide)
    found = orga("doctor", GITHUB_TOKEN="")
    assert "the environment has no GITHUB_TOKEN" in found.out + found.err


def test_a_worker_does_not_start_without_a_secret_that_a_server_needs(orga: Orga, guide: str) -> None:
    (orga.folder / "orga.toml").write_text(guide)
    done = orga("worker", GITHUB_TOKEN="")
    assert done.code != 0
    assert "mcp.servers.github.bearer_from: the environment has no GITHUB_TOKEN" in done.out + done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_no_server_is_left_running_when_a_worker_ends(orga: Orga, tmp_path: Path, number: signal.Signals) -> None:
    """After SIGKILL a server sees the end of its input, as the protocol defines."""
    server = hostile(tmp_path, tools=["echo", "pid"])
    (orga.folder / "orga.toml").write_text(written(server))
    with orga.started("worker") as worker:
        worker.line("MCP server s: connected, protocol 2025-11-25")
        worker.line("polls task queue")
        (pid,) = await wait_for_pids(tmp_path / "pid")
        assert is_running(pid)
        worker.process.send_signal(number)
        worker.process.wait(30)

    async def is_gone() -> bool:
        return not is_running(pid)

    await wait_until(is_gone)


async def test_a_worker_with_the_guides_server_offers_its_tools(orga: Orga, guide: str) -> None:
    (orga.folder / "orga.toml").write_text(guide.partition("[mcp.servers.github]")[0])
    with orga.started("worker") as worker:
        worker.line("MCP server time: connected, protocol 2026-07-28")
        worker.line("polls task queue")
