"""Third-party MCP servers, of both protocol revisions, installed once for the tests."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.support.parts.machine_lock import machine_lock

CACHE = Path(__file__).parents[3] / ".cache"
NODE_PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
)
PYTHON_PACKAGES = ("mcp-server-time", "mcp-server-git")


@cache
def node_program(name: str) -> str:
    """Return the path of a program that npm installs (`mcp-server-everything`)."""
    return str(
        installed_folder("mcp-node", lambda folder: with_npm(folder, *NODE_PACKAGES)) / "node_modules" / ".bin" / name
    )


@cache
def python_program(name: str) -> str:
    """Return the path of a program of a Python package, in a separate environment."""
    return str(installed_folder("mcp-python", _with_pip) / "bin" / name)


def installed_folder(name: str, install: Callable[[Path], None]) -> Path:
    """Install in place, since environments know their path. A mark is set when the install is complete."""
    folder = CACHE / name
    with machine_lock(CACHE / f"{name}.lock"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            install(folder)
            (folder / "complete").touch()
    return folder


def with_npm(folder: Path, *packages: str) -> None:
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
    subprocess.run(command, check=True, cwd=tempfile.gettempdir())


def _with_pip(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PYTHON_PACKAGES], check=True)
