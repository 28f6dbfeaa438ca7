"""Workers of a team in Go and in Java, built once by their own tool chains."""

import os
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

from tests.support.parts.machine_lock import machine_lock
from tests.support.parts.system_packages import require, run
from tests.support.parts.time_skipping import prepared_test_server

_SOURCES = Path(__file__).parents[1] / "programs" / "refunds"
_CACHE = Path(__file__).parents[3] / ".cache" / "team-workers"


def team_worker(language: str) -> list[str]:
    """Return the command of the worker in `go` or `java`. Call it outside of a running event loop."""
    return _go_worker() if language == "go" else _java_worker()


def _go_worker() -> list[str]:
    program = _CACHE / f"go-{_digest('go.mod', 'main.go')}" / "refunds"
    with machine_lock(_CACHE.with_suffix(".lock")):
        if not program.exists():
            require("go", "golang-go")
            fresh = Path(tempfile.mkdtemp(dir=_CACHE.parent))
            shutil.copytree(_SOURCES, fresh / "source")
            run("go", "mod", "tidy", cwd=fresh / "source")
            run("go", "build", "-o", str(fresh / "refunds"), ".", cwd=fresh / "source")
            _keep(fresh, program.parent)
    return [str(program)]


def _java_worker() -> list[str]:
    classes = _CACHE / f"java-{_digest('Refunds.java')}"
    libraries = str(prepared_test_server().parent / "lib" / "*")
    with machine_lock(_CACHE.with_suffix(".lock")):
        if not classes.exists():
            require("javac", "default-jdk-headless")
            fresh = Path(tempfile.mkdtemp(dir=_CACHE.parent))
            run("javac", "-cp", libraries, "-d", str(fresh), str(_SOURCES / "Refunds.java"))
            _keep(fresh, classes)
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{libraries}:{classes}", "Refunds"]


def _digest(*names: str) -> str:
    return sha256(b"".join((_SOURCES / name).read_bytes() for name in names)).hexdigest()[:12]


def _keep(fresh: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


def started_worker(command: list[str], *arguments: str, effects: Path, hangs: bool = False) -> subprocess.Popen[bytes]:
    """Start a worker for a server's address, a namespace and a queue. The caller stops it."""
    environment = os.environ | {"EFFECTS": str(effects)} | ({"HANGS": "1"} if hangs else {})
    return subprocess.Popen([*command, *arguments], env=environment, stderr=subprocess.DEVNULL)
