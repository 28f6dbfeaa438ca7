"""`orga server`, `worker` and `dev` run a server or workers until Ctrl-C. `orga logs` shows their logs."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Annotated

import typer

from orga.client.cli.connection import WATCH_S, CliContext, cli_context, raising_server_death
from orga.client.cli.exit_codes import ExitCode, UsageError, usage_errors
from orga.client.cli.interrupts import Command
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import set_quiet, write_json, write_note, write_result
from orga.client.server.embedded import ensure_server, is_server_down, running_server, stop_embedded_server
from orga.client.server.endpoint import Endpoint, lease, try_lock_leases
from orga.client.server.home import server_home
from orga.client.workers.deployment import deployment_name
from orga.client.workers.process import HEALTHY_S, MAX_DEATHS, spawn_in_foreground

MAX_MISSES = 3
"""Looks in a row without a server, after which it is down. Another command may have stopped it to start a new one."""


def server(
    stop_it: Annotated[
        bool, typer.Option("--stop", help="Stop the server. Runs stay in its database and go on later.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show whether it is running, and its address. Exit with 7 if it is not.")
    ] = False,
    json: Json = False,
) -> int | Command:
    """Other commands share the server, and start it if they need it. It stops a while after the last of them has ended.

    Example: orga server --status
    """
    if stop_it and status:
        raise UsageError("--stop: cannot be combined with --status")
    if status:
        return _show_status(as_json=json)
    if not stop_it:
        return _run_in_foreground(as_json=json)
    was_running = stop_embedded_server()
    if json:
        write_json({"stopped": was_running})
    else:
        write_result("the embedded server is stopped" if was_running else "no embedded server was running")
    return ExitCode.COMPLETED


def _show_status(*, as_json: bool) -> int:
    endpoint = running_server()
    if as_json:
        write_json(asdict(endpoint) if endpoint else None)
    elif endpoint:
        write_result(*_endpoint_lines(endpoint))
    else:
        write_note("no embedded server is running; the first command that needs it starts it, as does: orga server")
    return 0 if endpoint else ExitCode.NO_SERVER


async def _run_in_foreground(*, as_json: bool) -> int:
    with lease():
        endpoint = await ensure_server(write_note)
        if as_json:
            write_json(asdict(endpoint))
        else:
            write_result(*_endpoint_lines(endpoint))
        write_note("Ctrl-C ends this command; the server stops when no command uses it (at once: orga server --stop)")
        try:
            async with raising_server_death(endpoint):
                await _wait_until_down()
        except asyncio.CancelledError:
            return 0
    write_note("the server was stopped")
    return ExitCode.NO_SERVER


async def _wait_until_down() -> None:
    misses = 0
    while misses < MAX_MISSES:
        await asyncio.sleep(WATCH_S)
        misses = misses + 1 if is_server_down() else 0


def _endpoint_lines(endpoint: Endpoint) -> list[str]:
    return [f"address    {endpoint.address}", f"namespace  {endpoint.namespace}", f"ui         {endpoint.ui}"]


def _validate_deployment(deployment: str | None) -> str | None:
    with usage_errors():
        return None if deployment is None else deployment_name(deployment)


async def worker(
    deployment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run as a version of this deployment. Runs that begin on a version stay on it.",
            callback=_validate_deployment,
        ),
    ] = None,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="Write everything to stderr as JSON, one object per line.")
    ] = False,
    config: ConfigFile = None,
) -> int:
    """The root of file tools is the working directory unless orga.toml sets another. With --deployment, the worker gets
    no runs before its version is made current; orga doctor shows how. Its runs stay on that version until they continue
    as new.

    Example: orga worker --json-logs 2> worker.log

    Example: orga worker --deployment shop
    """
    if json_logs:
        from orga.client.telemetry.logs import configure_logs  # not needed for a worker in a terminal

        configure_logs(json=True)
        set_quiet(quiet=False, to_log=True)
    async with cli_context(config) as context:
        context.require_usable()
        order = context.worker_order(for_folder=True)
        child = spawn_in_foreground(replace(order, json_logs=json_logs, deployment=deployment))
        is_finishing = asyncio.Event()

        def finish() -> None:  # without it the signal would end only this command, and its supervisor then the worker
            is_finishing.set()
            child.send(signal.SIGUSR1)

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, finish)
        try:
            async with raising_server_death(context.connection.endpoint):
                code = await child.wait_for_end()
        except asyncio.CancelledError:
            return 0
        finally:
            await child.stop()
    if is_finishing.is_set() and code == 0:
        return 0
    write_note(f"orga: the worker ended (exit code {code})")
    return ExitCode.FAILED


LOG_S = 0.5
"""Seconds between two looks for new lines of the server's log."""


async def dev(config: ConfigFile = None) -> int:
    """The web console is included: open the address that it prints.

    Example: orga dev
    """
    embedded = False
    try:
        async with cli_context(config) as context:
            embedded = context.connection.endpoint.embedded
            async with raising_server_death(context.connection.endpoint):
                return await _run_server_and_worker(context)
    except asyncio.CancelledError:
        write_note("stopping…")
        return 0
    finally:
        if embedded:
            _stop_unused_server()


async def _run_server_and_worker(context: CliContext) -> int:
    endpoint = context.connection.endpoint
    write_note(f"[server] {endpoint.address}" + (f", UI {endpoint.ui}" if endpoint.ui else ""))
    log = asyncio.create_task(_relay_server_log()) if endpoint.embedded else None
    from orga.client.cli.workbench.console import console_of_dev  # the other commands need no web console

    try:
        async with console_of_dev(context) as address:
            write_note(f"[console] {address.page}")
            write_note(f"[console] for scripts: {address.plain}")
            return await _run_workers(context)
    finally:
        if log:
            log.cancel()


async def _run_workers(context: CliContext) -> int:
    """Run a worker and restart it when it dies, until too many in a row die soon after their start."""
    deaths = 0
    while deaths < MAX_DEATHS:
        context.require_usable()
        started = time.monotonic()
        child = spawn_in_foreground(context.worker_order(for_folder=True), pipe=True)
        try:
            write_note(f"[worker] process {child.pid} on task queue {context.task_queue!r}")
            if child.output is not None:
                async for line in _read_lines(child.output):
                    write_note(f"[worker] {line}")
        finally:
            await child.stop()
        deaths = deaths + 1 if time.monotonic() - started < HEALTHY_S else 1
        write_note(f"[worker] process {child.pid} died (exit code {child.exit_code()})")
    write_note(f"orga: {MAX_DEATHS} workers in a row died; their last lines show why")
    return ExitCode.FAILED


async def _read_lines(pipe: IO[bytes]) -> AsyncGenerator[str]:
    reader = asyncio.StreamReader(limit=2**20)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        while line := await reader.readline():
            yield line.decode(errors="replace").rstrip()
    finally:
        transport.close()


async def _relay_server_log() -> None:
    """Print the lines that are added to the server's log, until cancelled."""
    with suppress(OSError), server_home().log.open(errors="replace") as log:
        log.seek(0, os.SEEK_END)
        while True:
            for line in log:
                write_note(f"[server] {line.rstrip()}")
            await asyncio.sleep(LOG_S)


def _stop_unused_server() -> None:
    lock = try_lock_leases(server_home())
    if lock is not None:
        stop_embedded_server()
        os.close(lock)


LOOK_S = 0.3
"""Seconds between two looks for new lines of a log."""

TAIL_BYTES = 4_000_000
"""Bytes at the end of a log that are read to find its last lines."""


def logs(
    which: Annotated[
        str | None,
        typer.Argument(metavar="WHICH", help="server, worker (the newest) or a worker's number. Default: worker."),
    ] = None,
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The number of last lines to show.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new lines until Ctrl-C.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the logs, newest first.")] = False,
    json: Annotated[bool, typer.Option("--json", "-j", help="With --list: write the list as JSON.")] = False,
) -> None:
    """`orga worker` and `orga dev` write their logs to their own terminal. No server is needed.

    Example: orga logs --follow

    Example: orga logs server -n 200
    """
    if json and not list_:
        raise UsageError("--json: needs --list")
    if list_:
        _list_logs(as_json=json)
        return
    path = _find_log(which or "worker")
    write_note(str(path))
    last_lines, position = _read_tail(path, lines)
    for line in last_lines:
        write_result(line)
    if follow:
        for line in _new_lines(path, position):
            write_result(line)


def _log_paths() -> dict[str, Path]:
    """Return the logs by the name that selects them, newest first."""
    home = server_home()
    workers = sorted(home.folder.glob("worker-*.log"), key=_modified_at, reverse=True)
    paths = {path.stem.removeprefix("worker-"): path for path in workers}
    return paths | ({"server": home.log} if home.log.is_file() else {})


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted meanwhile
        return 0.0


def _find_log(which: str) -> Path:
    paths = _log_paths()
    newest = next((path for name, path in paths.items() if name != "server"), None)
    path = newest if which == "worker" else paths.get(which)
    if path is None:
        known = ", ".join(paths) or "none yet: a command that starts a worker, such as orga run, creates one"
        raise UsageError(f"there is no log {which!r}. There are: {known}")
    return path


def _list_logs(*, as_json: bool) -> None:
    paths = _log_paths()
    if as_json:
        write_json([{"name": name, "path": str(path)} for name, path in paths.items()])
        return
    for name, path in paths.items():
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(_modified_at(path)))
        write_result(f"{name:<10}  {at}  {path}")


@dataclass(frozen=True)
class _LogPosition:
    """The position up to which a log was read."""

    inode: int
    """The inode of the file. A server that restarts writes a new file."""
    offset: int


def _read_tail(path: Path, count: int) -> tuple[list[str], _LogPosition]:
    with path.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        log.seek(max(end - TAIL_BYTES, 0))
        lines = log.read().decode(errors="replace").splitlines()[-count:]
        return lines, _LogPosition(os.fstat(log.fileno()).st_ino, log.tell())


def _new_lines(path: Path, position: _LogPosition) -> Iterator[str]:
    """Yield the lines that are added to a log after `position`, without end."""
    partial_line = b""
    while True:
        with path.open("rb") as log:
            current = os.fstat(log.fileno())
            if current.st_ino != position.inode or current.st_size < position.offset:
                position, partial_line = _LogPosition(current.st_ino, 0), b""
            log.seek(position.offset)
            data = log.read()
        position = _LogPosition(position.inode, position.offset + len(data))
        *lines, partial_line = (partial_line + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
        time.sleep(LOOK_S)
