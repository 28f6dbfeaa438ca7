"""Starting a supervisor, detached, once."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from orga.client.server.home import Home, cache_folder
from orga.client.server.locks import taken
from orga.client.server.ports import Claim, claimed_port, number_lock
from orga.client.server.record import read_record
from orga.client.server.search_attributes import type_name
from orga.client.server.state_table import UnreadableTable, read_table, write_table
from orga.client.server.stopping import stop_server
from orga.own_code import ROOT
from orga.start import module_command
from orga.workflows.types.names import KEYS

PORT = 7233
UI_PORT = 8233

DYNAMIC_CONFIG = (
    "history.transferProcessorMaxPollRPS=10000",  # a lone run waits 45 ms less for each activity
    "system.enableActivityEagerExecution=true",  # without it 1 activity in 100 starts 2 s late
)

ENVIRONMENT = ("HOME", "PATH", "LANG", "TMPDIR", "XDG_CACHE_HOME")
"""All that the server sees of our environment: it outlives the command whose keys stand there."""


def launched(home: Home, executable: Path, idle_s: float) -> bool:
    """Start supervisor and server after clearing what killed ones left; False when another supervisor lives.

    The lock is taken here and lives on in the supervisor, which inherits it: there is no moment without it. The same
    holds for the claims of the ports.

    Raises:
        ServerUnavailable: No port is free, or what was left cannot be stopped.
    """
    lock = taken(home.supervisor_lock)
    if lock is None:
        return False
    try:
        with _claimed_ports(home) as (port, ui_port):
            place = ["--home", str(home.folder), "--idle-s", str(idle_s)]
            place += ["--port", str(port.port), "--ui-port", str(ui_port.port)]
            command = module_command("orga.client.server.supervisor", *place, "--", str(executable), *_flags(home))
            _run_detached(command, home.log, (lock, port.descriptor, ui_port.descriptor))
    finally:
        os.close(lock)
    return True


@contextmanager
def _claimed_ports(home: Home) -> Generator[list[Claim]]:
    """Stop a server that was left, and claim the ports of the last one: clients and links find the next server there.

    The numbers are locked before it ends, so that no other server of ours takes them in between.
    """
    locks, numbers = cache_folder() / "ports", _last_ports(home)
    held = [number_lock(number, locks) for number in numbers]
    claims = list[Claim]()
    try:
        stop_server(home)
        for number in numbers:
            claims.append(claimed_port(number, locks, lock=held.pop(0)))
        server, ui = (str(claim.port) for claim in claims)
        write_table(home.ports, {"server": server, "ui": ui})
        yield claims
    finally:
        for descriptor in (*(claim.descriptor for claim in claims), *(lock for lock in held if lock is not None)):
            os.close(descriptor)


def _last_ports(home: Home) -> tuple[int, int]:
    if left := read_record(home.record):
        return left.port, left.ui_port
    try:
        kept = read_table(home.ports)
        return int(kept["server"]), int(kept["ui"])
    except (UnreadableTable, KeyError, ValueError):
        return PORT, UI_PORT


def _flags(home: Home) -> list[str]:
    flags = ["--db-filename", str(home.database), "--log-level", "warn"]
    for setting in DYNAMIC_CONFIG:
        flags += ["--dynamic-config-value", setting]
    for key in KEYS:
        flags += ["--search-attribute", f"{key.name}={type_name(key)}"]
    return flags


def _run_detached(command: list[str], log: Path, inherited: tuple[int, ...]) -> None:
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
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
