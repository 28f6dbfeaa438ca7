"""Finds or fetches Temporal's time-skipping test server, and runs it for tests."""

import asyncio
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from temporalio.converter import DataConverter
from temporalio.testing import WorkflowEnvironment

from orga.client.errors import ServerUnavailable
from orga.client.history.values import data_converter
from orga.client.server.home import cache_folder
from orga.client.server.obtain import named_executable
from orga.client.server.port_numbers import free_port
from orga.own_code import installed_program

VARIABLE = "ORGA_TEST_SERVER"
COMMAND = "temporal-test-server"
VERSION = "1.38.0"
"""Version of the server that Java runs."""

STARTS_WITHIN = timedelta(seconds=60)
INSTALL_TIMEOUT_S = 300.0
"""Seconds for the download by Maven."""

REMEDY = (
    f"let this machine download it, install Java and Maven (Debian: default-jre-headless, maven), or name the command "
    f"in {VARIABLE}; tests that need no time skipping can use `environment(time_skipping=False)`"
)

_ARTIFACT = f"io.temporal:temporal-test-server:{VERSION}"
_MAIN = "io.temporal.testserver.TestServer"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>orga</groupId><artifactId>test-server</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>
  </dependencies>
</project>
"""

_LAUNCHER = f"""#!/bin/sh
here="$(cd "$(dirname "$0")" && pwd)"
exec java -XX:SharedArchiveFile="$here/classes.jsa" -Xshare:auto -Xlog:disable -XX:TieredStopAtLevel=1 \\
  -XX:+UseSerialGC -cp "$here/lib/*" {_MAIN} "$@"
"""


@asynccontextmanager
async def skipping_server(converter: DataConverter = data_converter) -> AsyncGenerator[WorkflowEnvironment]:
    """Start a server and stop it when the block ends."""
    async with await _start_first_found(converter) as environment:
        yield environment


async def _start_first_found(converter: DataConverter) -> WorkflowEnvironment:
    """Start the first server found: named, on PATH, in our cache, downloaded by the SDK, or fetched with Maven."""
    if found := _find_executable():
        return await _start_executable(found, converter)
    failures: list[str] = []
    try:
        return await _start_executable(None, converter)
    except RuntimeError as failure:
        failures.append(f"its download failed: {failure}")
    try:
        return await _start_executable(await asyncio.to_thread(fetch_with_maven), converter)
    except (OSError, RuntimeError, subprocess.SubprocessError) as failure:
        failures.append(f"it cannot be run by Java: {failure}")
    raise ServerUnavailable(f"there is no time-skipping test server here ({'; '.join(failures)})", REMEDY)


async def _start_executable(executable: Path | None, converter: DataConverter) -> WorkflowEnvironment:
    """Start a server. If there is no executable, the SDK downloads one."""
    folder = cache_folder() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    return await WorkflowEnvironment.start_time_skipping(
        data_converter=converter,
        test_server_existing_path=None if executable is None else str(executable),
        download_dest_dir=str(folder),
        test_server_startup_timeout=STARTS_WITHIN,
    )


def _find_executable() -> Path | None:
    if named := named_executable(VARIABLE):
        return named
    if found := installed_program(COMMAND):
        return Path(found)
    return fetched_launcher() if installed_program("java") else None


def fetched_launcher() -> Path | None:
    """Return the command that `fetch_with_maven` has created, or None."""
    launcher = _cache_folder() / COMMAND
    return launcher if launcher.exists() else None


def fetch_with_maven() -> Path:
    """Fetch the server's files with Maven into the cache, and return the command that runs the server with Java.

    Raise RuntimeError if Java or Maven is missing, or if the fetch failed.
    """
    for command in ("java", "mvn"):
        if installed_program(command) is None:
            raise RuntimeError(f"there is no `{command}`")
    target = _cache_folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".obtain-", dir=target.parent, ignore_cleanup_errors=True) as name:
        fresh = Path(name) / target.name
        fresh.mkdir()
        (fresh / "pom.xml").write_text(_POM.format(*_ARTIFACT.split(":")))
        maven = "mvn --batch-mode --quiet dependency:copy-dependencies"
        done = subprocess.run(
            [*maven.split(), "-DoutputDirectory=lib", "-DincludeScope=runtime"],
            cwd=fresh,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(f"`{maven}` failed: {(done.stdout + done.stderr).strip()[-500:]}")
        (fresh / COMMAND).write_text(_LAUNCHER)
        (fresh / COMMAND).chmod(0o755)
        _keep_classes(fresh)
        if not target.exists():  # it exists if another process was faster
            fresh.rename(target)
    return target / COMMAND


def _keep_classes(folder: Path) -> None:
    """Start the server once and keep its loaded classes, so that later starts take a third of the time."""
    port = free_port()
    archive = f"-XX:ArchiveClassesAtExit={folder / 'classes.jsa'}"
    java = ["java", archive, "-XX:+UseSerialGC", "-cp", f"{folder}/lib/*", _MAIN, str(port)]
    with subprocess.Popen(java, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + STARTS_WITHIN.total_seconds()
        while server.poll() is None and time.monotonic() < deadline:
            if _is_answering(port):
                break
            time.sleep(0.05)
        server.terminate()


def _is_answering(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _cache_folder() -> Path:
    return cache_folder() / f"{COMMAND}-{VERSION}"
