"""Temporal's time-skipping test server, from Maven Central: the SDK's own download needs a host that not all reach.

Its path is for `WorkflowEnvironment.start_time_skipping(test_server_existing_path=…)`.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.machine_lock import machine_lock

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


def time_skipping_server() -> Path:
    """Return the launcher of the test server, installed first where it is missing."""
    launcher = _FOLDER / "temporal-test-server"
    with machine_lock(_CACHE / "temporal-test-server.lock"):
        _require("java", "default-jre-headless")
        if not launcher.exists():
            _require("mvn", "maven")
            _install()
    return launcher


def _install() -> None:
    """Install beside the cache and move in place, so that a broken install is never taken for one."""
    fresh = Path(tempfile.mkdtemp(dir=_CACHE))
    (fresh / "pom.xml").write_text(_POM)
    goal = ["dependency:copy-dependencies", "-DoutputDirectory=lib", "-DincludeScope=runtime"]
    _run("mvn", "--batch-mode", "--quiet", *goal, cwd=fresh)
    launcher = fresh / "temporal-test-server"
    launcher.write_text(_LAUNCHER)
    launcher.chmod(0o755)
    shutil.rmtree(_FOLDER, ignore_errors=True)
    fresh.rename(_FOLDER)


def _require(command: str, package: str) -> None:
    if shutil.which(command):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RuntimeError(
            f"the time-skipping tests need `{command}`: install it (Debian: {package}) and run them again"
        )
    _run("apt-get", "update")
    _run("apt-get", "install", "--yes", "--no-install-recommends", package)


def _run(*command: str, cwd: Path | None = None) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed: {(done.stdout + done.stderr)[-2000:]}")
