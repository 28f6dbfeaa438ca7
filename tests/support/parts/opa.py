"""The Open Policy Agent: built once by its own tool chain, run as a server on a free port, and as compiler to WASM."""

import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.parts.free_port import free_port
from tests.support.parts.machine_lock import machine_lock

VERSION = "1.22.0"
READY_S = 30.0
_CACHE = Path(__file__).parents[3] / ".cache" / f"opa-{VERSION}"


@contextmanager
def running_opa(*files: Path, options: Sequence[str] = ()) -> Generator[str]:
    """Start a server with these policies or bundles, yield its URL, and stop it at the end."""
    address = f"127.0.0.1:{free_port()}"
    url = f"http://{address}"
    command = [str(opa()), "run", "--server", "--addr", address, "--log-level", "error"]
    bundles = [option for file in files if file.name.endswith(".tar.gz") for option in ("-b", str(file))]
    plain = [str(file) for file in files if not file.name.endswith(".tar.gz")]
    with subprocess.Popen([*command, *options, *bundles, *plain], stdout=subprocess.DEVNULL) as server:
        try:
            _wait(url, server)
            yield url
        finally:
            server.terminate()


def bundle(file: Path, target: Path, *options: str) -> Path:
    """Build a bundle of one policy."""
    subprocess.run([str(opa()), "build", *options, str(file), "-o", str(target)], check=True, timeout=60)
    return target


def opa() -> Path:
    """Return the program. If it is missing, build it next to the cache and move it there."""
    program = _CACHE / "opa"
    with machine_lock(_CACHE.with_suffix(".lock")):
        if not program.exists():
            fresh = Path(tempfile.mkdtemp(dir=_CACHE.parent))
            module = f"github.com/open-policy-agent/opa@v{VERSION}"
            subprocess.run(["go", "install", module], check=True, env=os.environ | {"GOBIN": str(fresh)})
            shutil.rmtree(_CACHE, ignore_errors=True)
            fresh.rename(_CACHE)
    return program


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health"):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"opa did not start: {server.poll()}")
