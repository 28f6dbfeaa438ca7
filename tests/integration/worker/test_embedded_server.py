"""The embedded server, with the real `temporal`: it is shared, restarted and stopped, and never left running."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from orga.activities.adapters.shared_files import is_locked
from orga.client.cli.exit_codes import ExitCode
from orga.client.errors import ServerUnavailable
from orga.client.server.embedded import ensure_server, running_server, server_death, stop_embedded_server
from orga.client.server.endpoint import Endpoint, ServerRecord, lease, read_record
from orga.client.server.home import Home
from orga.client.server.resolve import resolve_endpoint
from orga.client.server.search_attributes import SearchAttributesRefused, missing_names, register_missing
from orga.client.server.server_errors import silence_reason
from orga.own_code import ROOT
from orga.workflows.types.names import KEYS
from tests.support.parts.temporal import temporal_cli
from tests.support.programs.orga_command import Orga

OTHER_COMMAND = """
import asyncio
from orga.client.server.embedded import ensure_server
from orga.client.server.endpoint import lease
with lease():
    print(asyncio.run(ensure_server(lambda line: None)).address, flush=True)
    input()
"""


@pytest.fixture(scope="module")
def executable() -> Path:
    return temporal_cli()


@pytest.fixture
def home(executable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Home]:
    """A server folder for one test. Its processes are stopped at the end."""
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORGA_TEMPORAL_CLI", str(executable))
    yield Home(tmp_path / "home")
    stop_embedded_server()
    assert not is_locked(Home(tmp_path / "home").server_lock)


def silent(line: str) -> None:
    """Ignore the line."""


async def until(condition: Callable[[], bool], within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def recorded(home: Home) -> ServerRecord:
    record = read_record(home.record)
    assert record is not None
    return record


def supervisor_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])


async def start_a_run(endpoint: Endpoint) -> None:
    client = await Client.connect(endpoint.address)
    await client.start_workflow("Anything", id="kept", task_queue="nobody")


async def has_the_run(endpoint: Endpoint) -> bool:
    description = await (await Client.connect(endpoint.address)).get_workflow_handle("kept").describe()
    return description.workflow_type == "Anything"


async def damage(endpoint: Endpoint) -> None:
    """Cancel requests until one is cancelled while SQLite reads. From then on the server refuses all."""
    service = (await Client.connect(endpoint.address)).workflow_service
    request = DescribeWorkflowExecutionRequest(namespace="default", execution=WorkflowExecution(workflow_id="kept"))

    async def cancelled_request() -> None:
        task = asyncio.ensure_future(service.describe_workflow_execution(request))
        await asyncio.sleep(random.random() * 0.004)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def is_interrupted() -> bool:
        try:
            await service.describe_workflow_execution(request)
        except RPCError as error:
            return "interrupted" in error.message
        return False

    for _ in range(3_000):
        await asyncio.gather(*(cancelled_request() for _ in range(20)))
        if await is_interrupted() and await is_interrupted():
            return
    raise AssertionError("no cancelled request damages this server: its supervisor need not look for that any more")


def another_command() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OTHER_COMMAND]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_commands_that_start_at_once_share_one_server(home: Home) -> None:
    commands = [another_command() for _ in range(3)]
    addresses = [await asyncio.to_thread(command.stdout.readline) for command in commands if command.stdout]
    endpoint = await ensure_server(silent)
    for command in commands:
        command.communicate("\n")

    assert addresses == [f"{endpoint.address}\n"] * 3
    assert running_server() == endpoint
    assert endpoint.embedded


async def test_the_server_sees_no_key_of_the_command_and_its_files_are_private(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    await ensure_server(silent)
    server = recorded(home).pid
    for pid in (server, supervisor_of(server)):
        assert b"sk-secret" not in Path(f"/proc/{pid}/environ").read_bytes()
    written = [path for path in home.folder.rglob("*") if path.is_file()]
    assert {"server.log", "temporal.db"} <= {path.name for path in written}
    assert [path.name for path in written if path.stat().st_mode & 0o077] == []


async def test_progress_is_reported_only_if_a_server_is_started(home: Home) -> None:
    reported: list[str] = []
    await ensure_server(reported.append)
    await ensure_server(reported.append)
    assert reported == ["starting the Temporal server…"]


async def test_a_killed_unused_server_is_cleaned_up_and_the_next_one_has_its_runs(home: Home) -> None:
    await start_a_run(await ensure_server(silent))
    killed = recorded(home).pid
    os.kill(killed, signal.SIGKILL)
    await until(lambda: not is_locked(home.supervisor_lock))
    assert (running_server(), home.record.exists()) == (None, False)

    assert await has_the_run(await ensure_server(silent))
    assert recorded(home).pid != killed


async def test_a_server_killed_while_in_use_comes_back_at_the_same_address(home: Home) -> None:
    with lease():
        endpoint = await ensure_server(silent)
        await start_a_run(endpoint)
        os.kill(recorded(home).pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            while await silence_reason(endpoint.address):
                await asyncio.sleep(0.1)
        assert await has_the_run(endpoint)


async def test_a_server_that_cannot_read_its_database_any_more_is_started_again(home: Home) -> None:
    with lease():
        endpoint = await ensure_server(silent)
        await start_a_run(endpoint)
        damaged = recorded(home).pid
        await damage(endpoint)
        await until(lambda: (now := read_record(home.record)) is not None and now.ready and now.pid != damaged, 60)
        assert await has_the_run(endpoint)


async def kill_until_given_up(home: Home) -> int:
    """Kill each new server until the supervisor starts no other one. Return how many were killed."""
    killed: list[int] = []
    deadline = time.monotonic() + 90
    while is_locked(home.supervisor_lock):
        assert time.monotonic() < deadline, f"the supervisor still starts servers, after {len(killed)}"
        record = read_record(home.record)
        if record is not None and record.ready and record.pid not in killed:
            os.kill(record.pid, signal.SIGKILL)
            killed.append(record.pid)
        await asyncio.sleep(0.02)
    return len(killed)


async def test_a_server_that_keeps_dying_is_reported_to_the_commands_that_need_it(home: Home, tmp_path: Path) -> None:
    """The supervisor has no terminal, so the commands report the cause and the remedy."""
    orga = Orga(tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    problem = (
        "orga: the Temporal server could not be kept running: it died 10 times in a row; the last time it was killed, "
        f"perhaps because the machine had no memory left; see {home.log}, and start this command again"
    )
    with (
        orga.started("server") as server,
        orga.started("worker") as worker,
        orga.started("console", "--no-worker") as console,
    ):
        server.line("Ctrl-C ends this command")
        worker.line("Ctrl-C stops it")
        console.line("Ctrl-C ends the console")
        assert await kill_until_given_up(home) == 10
        commands = [server, worker, console]
        codes = [await asyncio.to_thread(command.code) for command in commands]
    assert codes == [ExitCode.NO_SERVER] * 3
    assert [command.err[-1] for command in commands] == [problem] * 3

    found = await asyncio.to_thread(orga, "doctor")
    assert found.code == ExitCode.COMPLETED  # the doctor has started the server again
    assert "! server: the one before it could not be kept running, until " in found.out
    assert f"→ look for the cause in {home.previous_log} and in the log of the system" in found.out


async def test_an_early_death_of_a_restarted_server_is_no_silent_end(home: Home) -> None:
    """The first restart fails before the server has bound its ports, like one with a full disk."""
    with lease():
        await ensure_server(silent)
        home.database.rename(home.folder / "kept.db")
        home.database.mkdir()
        os.kill(recorded(home).pid, signal.SIGKILL)
        await until(lambda: not is_locked(home.supervisor_lock), 60)
        death = server_death()
    assert death is not None
    assert "it died 10 times in a row; the last time it ended with exit code 1; see " in str(death)


async def test_a_stopped_server_is_not_reported_as_dead(home: Home) -> None:
    await ensure_server(silent)
    await asyncio.to_thread(stop_embedded_server)
    assert server_death() is None


async def test_the_next_command_replaces_a_server_whose_supervisor_was_killed(home: Home) -> None:
    endpoint = await ensure_server(silent)
    await start_a_run(endpoint)
    stray = recorded(home).pid
    os.kill(supervisor_of(stray), signal.SIGKILL)
    await until(lambda: not is_locked(home.supervisor_lock))
    assert running_server() == endpoint, "it still serves its clients"

    assert await ensure_server(silent) == endpoint, "the same ports, so its clients find it again"
    assert recorded(home).pid != stray
    assert supervisor_of(recorded(home).pid) != 1
    assert await has_the_run(endpoint)


async def test_a_server_without_a_supervisor_can_be_stopped(home: Home) -> None:
    await ensure_server(silent)
    os.kill(supervisor_of(recorded(home).pid), signal.SIGKILL)
    await until(lambda: not is_locked(home.supervisor_lock))

    assert await asyncio.to_thread(stop_embedded_server)
    assert (is_locked(home.server_lock), home.record.exists()) == (False, False)


async def test_stop_ends_a_server_in_use_and_keeps_its_runs(home: Home) -> None:
    with lease():
        await start_a_run(await ensure_server(silent))
        assert await asyncio.to_thread(stop_embedded_server)
        assert not is_locked(home.supervisor_lock)
        assert running_server() is None
        assert not await asyncio.to_thread(stop_embedded_server)
    assert await has_the_run(await ensure_server(silent))


async def test_a_terminated_supervisor_stops_its_server(home: Home) -> None:
    await ensure_server(silent)
    os.kill(supervisor_of(recorded(home).pid), signal.SIGTERM)
    await until(lambda: not is_locked(home.supervisor_lock))
    assert not is_locked(home.server_lock)
    assert "Stopping server" in home.log.read_text()


async def test_a_lease_keeps_the_server_running_and_without_one_it_ends(home: Home) -> None:
    with lease():
        await ensure_server(silent, idle_s=0.2)
        unused_for = time.monotonic() + 1.0
        await until(lambda: time.monotonic() > unused_for)
        assert running_server() is not None
    await until(lambda: not is_locked(home.supervisor_lock))
    assert running_server() is None
    assert not home.record.exists()


async def test_a_killed_command_releases_its_lease(home: Home) -> None:
    with lease():
        await ensure_server(silent, idle_s=0.2)
        command = another_command()
        assert command.stdout
        await asyncio.to_thread(command.stdout.readline)
    assert running_server() is not None
    command.kill()
    command.communicate()
    await until(lambda: not is_locked(home.supervisor_lock))


async def test_a_lease_taken_while_the_idle_server_stops_gets_a_new_server(home: Home) -> None:
    with lease():
        await ensure_server(silent, idle_s=0.2)
        first = recorded(home).pid
    await until(lambda: "Stopping server" in home.log.read_text())
    with lease():
        assert not is_locked(home.server_lock)
        await ensure_server(silent)
        assert recorded(home).pid != first


async def test_ports_in_use_are_skipped(home: Home) -> None:
    blockers = [block(7233), block(8233)]
    endpoint = await ensure_server(silent)
    for blocker in blockers:
        blocker.close()

    assert endpoint.address != "127.0.0.1:7233"
    assert endpoint.ui != "http://127.0.0.1:8233"


async def test_a_restarted_server_uses_its_old_ports(home: Home) -> None:
    """Other ports may be free by then, but links and configured clients use the old ones."""
    blockers = [block(7233), block(8233)]
    endpoint = await ensure_server(silent)
    await asyncio.to_thread(stop_embedded_server)
    for blocker in blockers:
        blocker.close()
    assert await ensure_server(silent) == endpoint


def block(port: int) -> socket.socket:
    """Listen on the port, unless another process does already."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with suppress(OSError):
        listener.bind(("127.0.0.1", port))
        listener.listen()
    return listener


async def test_an_unwritable_folder_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is in its place, because permission bits do not stop root."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "file"))
    with pytest.raises(ServerUnavailable, match=r"file cannot be written .*; make it writable or name another one"):
        await ensure_server(silent)


async def test_the_error_of_a_server_that_dies_at_its_start_is_quoted(home: Home) -> None:
    home.folder.mkdir()
    home.database.write_text("this is no database, " * 1000)
    with pytest.raises(ServerUnavailable, match=r"died at its start \(.*file is not a database.*\); see .*server\.log"):
        await ensure_server(silent)
    assert not is_locked(home.supervisor_lock)


async def test_a_configured_server_is_used_and_none_is_started(home: Home, tmp_path: Path) -> None:
    endpoint = await ensure_server(silent)
    os.environ["ORGA_HOME"] = str(tmp_path / "other")
    try:
        assert await resolve_endpoint(endpoint.address, silent) == Endpoint(endpoint.address)
        assert not (tmp_path / "other").exists()
    finally:
        os.environ["ORGA_HOME"] = str(home.folder)


async def test_a_database_of_an_older_version_gets_the_missing_attributes(home: Home, executable: Path) -> None:
    """The server's own flags affect only a new database."""
    home.folder.mkdir()
    async with await a_server(executable, database=str(home.database)):
        pass
    endpoint = await ensure_server(silent)
    assert await missing_names(await Client.connect(endpoint.address)) == []


async def test_registration_reports_what_it_added_and_adds_it_once(executable: Path) -> None:
    async with await a_server(executable) as environment:
        assert await missing_names(environment.client) == [key.name for key in KEYS]
        assert await register_missing(environment.client) == [key.name for key in KEYS]
        assert await register_missing(environment.client) == []


async def test_an_attribute_name_of_another_type_is_refused(executable: Path) -> None:
    async with await a_server(executable, "--search-attribute", "OrgaAgent=Int") as environment:
        with pytest.raises(SearchAttributesRefused, match="OrgaAgent of namespace 'default' is no Keyword; remove it"):
            await register_missing(environment.client)


async def a_server(executable: Path, *flags: str, database: str | None = None) -> WorkflowEnvironment:
    return await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]
        dev_server_existing_path=str(executable),
        dev_server_database_filename=database,
        dev_server_extra_args=list(flags),
    )
