"""`python -m tests.support.parts`: installs the real parts that the tests need, before any test's time limit runs."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.support.parts.aimock import installed as aimock
from tests.support.parts.bubblewrap import bubblewrap
from tests.support.parts.front_ends import agui_package, assistant_ui, front_ends
from tests.support.parts.mcp_servers import node_program, python_program
from tests.support.parts.opa import opa
from tests.support.parts.system_packages import require
from tests.support.parts.team_workers import team_worker
from tests.support.parts.temporal import temporal_cli
from tests.support.parts.time_skipping import prepared_test_server

Parts = dict[str, Callable[[], object]]

BUILT: Parts = {
    "Temporal server": temporal_cli,
    "Open Policy Agent": opa,
    "activity worker in Go": lambda: team_worker("go"),
}
"""Go compiles them, except a Temporal server that can be downloaded. It takes minutes and all cores."""

FETCHED: Parts = {
    "time-skipping server": prepared_test_server,
    "model protocol server": aimock,
    "bubblewrap": bubblewrap,
    "Chromium": lambda: require("chromium", "chromium"),
    "MCP servers of npm": lambda: node_program("mcp-server-everything"),
    "front ends of npm": front_ends,
    "client of AG-UI": agui_package,
    "assistant-ui": assistant_ui,
    "MCP servers of PyPI": lambda: python_program("mcp-server-time"),
    "activity worker in Java": lambda: team_worker("java"),
}
"""They mostly wait for the network, so they are fetched while Go compiles."""


def _obtain(parts: Parts) -> None:
    for name, obtain in parts.items():
        print(f"{name} …", file=sys.stderr, flush=True)
        obtain()


if __name__ == "__main__":
    with ThreadPoolExecutor() as pool:
        fetching = pool.submit(_obtain, FETCHED)
        _obtain(BUILT)
        fetching.result()
