"""Programs from the system's packages."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from threading import Lock

_LOCK = Lock()


def require(command: str, package: str) -> None:
    """Install the package if its command is missing."""
    with _LOCK:  # apt-get fails while another one runs
        if shutil.which(command):
            return
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise RuntimeError(f"some tests need `{command}`: install it (Debian: {package}) and run them again")
        _update_packages()
        run("apt-get", "install", "--yes", "--no-install-recommends", package)


@cache
def _update_packages() -> None:
    run("apt-get", "update")


def run(*command: str, cwd: Path | None = None) -> None:
    """Run a non-interactive command. If it fails, raise an error with its output."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed: {(done.stdout + done.stderr)[-2000:]}")
