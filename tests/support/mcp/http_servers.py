"""MCP servers over streamable HTTP as separate processes, on free ports."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.mcp import modern as mcp_modern
from tests.support.mcp import per_user as mcp_per_user
from tests.support.mcp import with_clients as mcp_with_clients
from tests.support.mcp import with_logins as mcp_with_logins
from tests.support.parts.free_port import free_port
from tests.support.parts.mcp_servers import node_program

READY_S = 30.0


@dataclass(frozen=True)
class HttpServer:
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def everything(port: int | None = None) -> Generator[HttpServer]:
    """Run `server-everything` (2025-11-25)."""
    port = port or free_port()
    with _running([node_program("mcp-server-everything"), "streamableHttp"], port, {"PORT": str(port)}) as server:
        yield server


@contextmanager
def modern(folder: Path) -> Generator[HttpServer]:
    """Run a server of the SDK (2026-07-28)."""
    port = free_port()
    with _running([sys.executable, mcp_modern.__file__, str(port), str(folder)], port, {}) as server:
        yield server


@contextmanager
def per_user(folder: Path, *tokens: str) -> Generator[HttpServer]:
    """Run a server that only answers requests with one of these values of `Authorization`."""
    port = free_port()
    (folder / "tokens.json").write_text(json.dumps(tokens))
    with _running([sys.executable, mcp_per_user.__file__, str(port), str(folder)], port, {}) as server:
        yield server


@contextmanager
def with_clients(folder: Path, **facts: object) -> Generator[HttpServer]:
    """Run a server with an authorization server, which takes the client `orga`. `facts` change its behaviour."""
    port = free_port()
    (folder / "facts.json").write_text(json.dumps(facts))
    with _running([sys.executable, mcp_with_clients.__file__, str(port), str(folder)], port, {}) as server:
        yield server


@contextmanager
def with_logins(folder: Path, **facts: object) -> Generator[HttpServer]:
    """Run a server with an authorization server at which people log in. `facts` change its behaviour."""
    port = free_port()
    (folder / "facts.json").write_text(json.dumps(facts))
    with _running([sys.executable, mcp_with_logins.__file__, str(port), str(folder)], port, {}) as server:
        yield server


@contextmanager
def _running(command: list[str], port: int, env: dict[str, str]) -> Generator[HttpServer]:
    with subprocess.Popen(
        command, env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_for(port, process)
            yield HttpServer(f"http://127.0.0.1:{port}/mcp", process)
        finally:
            process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nobody listens on port {port}; the server ended with {process.poll()}")
