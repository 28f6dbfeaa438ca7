"""Temporal's time-skipping test server, from Maven Central: the SDK's own download needs a host that not all reach."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from client.converter import data_converter
from tests.support.machine_lock import machine_lock
from tests.support.system_packages import require, run

VERSION = "1.38.0"
_CACHE = Path(__file__).parents[2] / ".cache"
_FOLDER = _CACHE / f"temporal-test-server-{VERSION}"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>orga</groupId><artifactId>test-server</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>io.temporal</groupId><artifactId>temporal-test-server</artifactId><version>{VERSION}</version></dependency>
  </dependencies>
</project>
"""

_LAUNCHER = """#!/bin/sh
exec java -cp "$(dirname "$0")/lib/*" io.temporal.testserver.TestServer "$@"
"""

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
