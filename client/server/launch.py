"""Starting a supervisor, detached, once."""

import os
import subprocess
from pathlib import Path

from orga.client.server.home import Home
from orga.client.server.locks import taken
from orga.client.server.search_attributes import type_name
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

    The lock is taken here and lives on in the supervisor, which inherits it: there is no moment without it.
    """
    lock = taken(home.supervisor_lock)
    if lock is None:
        return False
    try:
        stale = stop_server(home)
        port, ui_port = (stale.port, stale.ui_port) if stale else (PORT, UI_PORT)
        place = ["--home", str(home.folder), "--idle-s", str(idle_s), "--port", str(port), "--ui-port", str(ui_port)]
        command = module_command("orga.client.server.supervisor", *place, "--", str(executable), *_flags(home))
        _run_detached(command, home.log, lock)
    finally:
        os.close(lock)
    return True


def _flags(home: Home) -> list[str]:
    flags = ["--db-filename", str(home.database), "--log-level", "warn"]
    for setting in DYNAMIC_CONFIG:
        flags += ["--dynamic-config-value", setting]
    for key in KEYS:
        flags += ["--search-attribute", f"{key.name}={type_name(key)}"]
    return flags


def _run_detached(command: list[str], log: Path, lock: int) -> None:
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    with log.open("xb") as output:
        subprocess.run(
            command,
            cwd=ROOT,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(lock,),
            umask=0o077,
            check=True,
        )
