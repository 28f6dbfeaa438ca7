"""Temporal's time-skipping test server, from Maven Central: the SDK's own download needs a host that not all reach."""

import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from orga.client.history.converter import data_converter
from tests.support.parts.machine_lock import machine_lock
from tests.support.parts.system_packages import require, run

VERSION = "1.38.0"
_CACHE = Path(__file__).parents[3] / ".cache"
_FOLDER = _CACHE / f"temporal-test-server-{VERSION}"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>orga</groupId><artifactId>test-server</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>io.temporal</groupId><artifactId>temporal-test-server</artifactId><version>{VERSION}</version></dependency>
  </dependencies>
</project>
"""

_MAIN = "io.temporal.testserver.TestServer"
_CLASSES = f"{_FOLDER}/lib/*"
_ARCHIVE = _FOLDER / "classes.jsa"
"""Of loaded classes: with it a start takes a third of the processor time, for the SDK waits only five seconds."""

_LAUNCHER = f"""#!/bin/sh
here="$(dirname "$0")"
exec java -XX:SharedArchiveFile="$here/{_ARCHIVE.name}" -Xlog:disable -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \\
  -cp "$here/lib/*" {_MAIN} "$@"
"""
_STARTS_WITHIN_S = 60.0

_TRIES = 5


@asynccontextmanager
async def time_skipping() -> AsyncGenerator[WorkflowEnvironment]:
    """Start a server of its own and stop it again."""
    path = await asyncio.to_thread(time_skipping_server)
    async with await _started(str(path)) as environment:
        yield environment


async def _started(path: str) -> WorkflowEnvironment:
    """Start it, and again where it was slow: the SDK gives it five seconds, a loaded machine needs more."""
    for left in reversed(range(_TRIES)):
        try:
            return await WorkflowEnvironment.start_time_skipping(
                test_server_existing_path=path, data_converter=data_converter
            )
        except RuntimeError:
            if not left:
                raise
    raise AssertionError


def time_skipping_server() -> Path:
    """Return the launcher of the test server, installed first where it is missing."""
    launcher = _FOLDER / "temporal-test-server"
    with machine_lock(_CACHE / "temporal-test-server.lock"):
        require("java", "default-jre-headless")
        if not launcher.exists():
            require("mvn", "maven")
            _install()
        if not _ARCHIVE.exists():
            _archive()
    return launcher


def _install() -> None:
    """Install beside the cache and move in place, so that a broken install is never taken for one."""
    fresh = Path(tempfile.mkdtemp(dir=_CACHE))
    (fresh / "pom.xml").write_text(_POM)
    goal = ["dependency:copy-dependencies", "-DoutputDirectory=lib", "-DincludeScope=runtime"]
    run("mvn", "--batch-mode", "--quiet", *goal, cwd=fresh)
    launcher = fresh / "temporal-test-server"
    launcher.write_text(_LAUNCHER)
    launcher.chmod(0o755)
    shutil.rmtree(_FOLDER, ignore_errors=True)
    fresh.rename(_FOLDER)


def _archive() -> None:
    """Start the server once, and keep the classes that it has loaded when it ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    order = ["java", f"-XX:ArchiveClassesAtExit={_ARCHIVE}", "-XX:+UseSerialGC", "-cp", _CLASSES, _MAIN, str(port)]
    with subprocess.Popen(order, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while not _answers(port) and time.monotonic() < deadline:
            time.sleep(0.05)
        server.terminate()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
