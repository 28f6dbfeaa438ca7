"""Starts, finds and stops the embedded server. A user's commands on a machine share it. It ends when nobody uses it."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from temporalio.client import Client

from orga.activities.adapters.shared_files import is_locked, try_lock
from orga.client.errors import ServerUnavailable
from orga.client.server.endpoint import GIVEN_UP, Endpoint, Report, ServerRecord, given_up_cause, read_record
from orga.client.server.home import (
    Home,
    UnreadableTable,
    cache_folder,
    prepare_home,
    read_table,
    server_home,
    write_table,
)
from orga.client.server.obtain import locate
from orga.client.server.port_numbers import Claim, claimed_port, number_lock
from orga.client.server.search_attributes import register_missing, type_name
from orga.client.server.server_errors import silence_reason
from orga.own_code import ROOT
from orga.start import module_command
from orga.workflows.types.names import KEYS

PORT = 7233
UI_PORT = 8233

DYNAMIC_CONFIG = (
    "history.transferProcessorMaxPollRPS=10000",  # a lone run waits 45 ms less for each activity
    "system.enableActivityEagerExecution=true",  # without it 1 activity in 100 starts 2 s late
)
FAST_SERVER_FLAGS = [flag for setting in DYNAMIC_CONFIG for flag in ("--dynamic-config-value", setting)]

ENVIRONMENT = ("HOME", "PATH", "LANG", "TMPDIR", "XDG_CACHE_HOME")
"""The only variables that the server inherits. The others may hold keys, and the server outlives the command."""

IDLE_S = 300.0
"""Seconds without a lease after which the server ends."""
START_TIMEOUT_S = 60.0
TERMINATE_TIMEOUT_S = 10.0
"""Seconds from SIGTERM until the server is killed."""
SUPERVISOR_END_S = 15.0
"""Seconds that a command waits for the supervisor to end."""


def stop_server(home: Home) -> ServerRecord | None:
    """Stop the running server, or one that a killed supervisor left. Remove its record and return it.

    While the server's lock is held, the recorded process is the server, and not another process with the same number.
    The record is removed before the signal, so that a supervisor does not start the server again.
    """
    record: ServerRecord | None = None
    deadline = time.monotonic() + TERMINATE_TIMEOUT_S
    while is_locked(home.server_lock):
        if current := read_record(home.record):
            record = current
            home.record.unlink(missing_ok=True)
            deadline = time.monotonic() + TERMINATE_TIMEOUT_S
            _send_signal(record.pid, signal.SIGTERM)
        elif time.monotonic() > deadline:
            _send_signal(_require_record(record, home).pid, signal.SIGKILL)
        time.sleep(0.05)
    record = record or read_record(home.record)
    home.record.unlink(missing_ok=True)
    return record


def _require_record(record: ServerRecord | None, home: Home) -> ServerRecord:
    if record is None:
        raise ServerUnavailable(
            f"a Temporal server runs, but {home.record} does not say which",
            f"end the process that holds {home.server_lock}",
        )
    return record


def _send_signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def launch_supervisor(home: Home, executable: Path, idle_s: float) -> bool:
    """Stop a leftover server, then start supervisor and server. Return False if another supervisor lives.

    The supervisor inherits its lock and the claims of the ports from this process, so they are held all the time.
    """
    lock = try_lock(home.supervisor_lock)
    if lock is None:
        return False
    try:
        with _claimed_ports(home) as (port, ui_port):
            options = ["--home", str(home.folder), "--idle-s", str(idle_s)]
            options += ["--port", str(port.port), "--ui-port", str(ui_port.port)]
            server = ["--", str(executable), *_server_flags(home)]
            command = module_command("orga.client.server.supervisor", *options, *server)
            _run_detached(command, home, (lock, port.descriptor, ui_port.descriptor))
    finally:
        os.close(lock)
    return True


@contextmanager
def _claimed_ports(home: Home) -> Generator[list[Claim]]:
    """Stop a leftover server and claim its ports, so that clients and links find the next server there.

    The ports are locked before the leftover server ends, so that no other server of ours takes them.
    """
    folder, numbers = cache_folder() / "ports", _last_ports(home)
    locks = [number_lock(number, folder) for number in numbers]
    claims = list[Claim]()
    try:
        stop_server(home)
        for number in numbers:
            lock = locks.pop(0)  # it belongs to the claim from now on
            claims.append(claimed_port(number, folder, lock=lock))
        server, ui = (str(claim.port) for claim in claims)
        write_table(home.ports, {"server": server, "ui": ui})
        yield claims
    finally:
        for descriptor in (*(claim.descriptor for claim in claims), *locks):
            if descriptor is not None:
                os.close(descriptor)


def _last_ports(home: Home) -> tuple[int, int]:
    if left := read_record(home.record):
        return left.port, left.ui_port
    try:
        kept = read_table(home.ports)
        return int(kept["server"]), int(kept["ui"])
    except (UnreadableTable, KeyError, ValueError):
        return PORT, UI_PORT


def _server_flags(home: Home) -> list[str]:
    flags = ["--db-filename", str(home.database), "--log-level", "warn", *FAST_SERVER_FLAGS]
    for key in KEYS:
        flags += ["--search-attribute", f"{key.name}={type_name(key)}"]
    return flags


def _run_detached(command: list[str], home: Home, inherited: tuple[int, ...]) -> None:
    if home.log.exists():
        home.log.replace(home.previous_log)
    with os.fdopen(os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
        subprocess.run(
            command,
            cwd=ROOT,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=inherited,
            umask=0o077,
            check=True,
        )


async def ensure_server(report: Report, *, idle_s: float = IDLE_S) -> Endpoint:
    """Return the running server, or start one that stops after `idle_s` without a lease. Call this within a `lease`."""
    home = prepare_home()
    while True:
        launched = False
        if not is_locked(home.supervisor_lock):
            executable = await locate(report)
            report("starting the Temporal server…")
            launched = await asyncio.to_thread(launch_supervisor, home, executable, idle_s)
        if record := await _wait_for_answer(home):
            break
        if launched:  # the supervisor of another command may have ended by itself, but ours failed
            raise _death_error(home)
    if launched:
        # the server adds the search attributes in its flags only to a new database, so an older one may lack some
        client = await Client.connect(record.endpoint.address, namespace=record.endpoint.namespace)
        await register_missing(client)
    return record.endpoint


def running_server() -> Endpoint | None:
    home = server_home()
    record = read_record(home.record)
    return record.endpoint if record and record.ready and is_locked(home.server_lock) else None


def is_server_down() -> bool:
    """Return whether there is no embedded server and no supervisor that starts one."""
    return running_server() is None and not is_locked(server_home().supervisor_lock)


def server_death() -> ServerUnavailable | None:
    """Return the error for users of a server that its supervisor gave up, or None. The next command starts another."""
    home = server_home()
    cause = None if is_locked(home.supervisor_lock) else given_up_cause(home.log)
    if cause is None:
        return None
    return ServerUnavailable(
        f"the Temporal server could not be kept running: {cause}", f"see {home.log}, and start this command again"
    )


def stop_embedded_server() -> bool:
    """Stop the embedded server, even if it is in use. Return whether there was one. Its runs stay in the database."""
    home = server_home()
    stopped = stop_server(home) is not None
    deadline = time.monotonic() + SUPERVISOR_END_S
    while is_locked(home.supervisor_lock) and time.monotonic() < deadline:
        time.sleep(0.05)
    return stopped


async def _wait_for_answer(home: Home) -> ServerRecord | None:
    """Wait for the server while its supervisor lives. Return None if the supervisor ended first."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while is_locked(home.supervisor_lock):
        record = read_record(home.record)
        if record and record.ready and await silence_reason(record.endpoint.address) is None:
            return record
        if time.monotonic() > deadline:
            raise ServerUnavailable(
                f"the Temporal server did not answer within {START_TIMEOUT_S:g} s",
                f"see {home.log}, or stop it with `orga server --stop`",
            )
        await asyncio.sleep(0.05)
    return None


def _death_error(home: Home) -> ServerUnavailable:
    log = home.log.read_text(errors="replace") if home.log.exists() else ""
    lines = [stripped for line in log.splitlines() if (stripped := line.strip())]
    last_lines = " | ".join(line.removeprefix(GIVEN_UP)[:300] for line in lines[-3:])
    return ServerUnavailable(
        f"the Temporal server died at its start ({last_lines or 'it printed nothing'})", f"see {home.log}"
    )
