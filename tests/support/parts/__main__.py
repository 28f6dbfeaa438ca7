"""`python -m tests.support.parts`: installs the real parts that the tests need, before any test's time limit runs."""

import sys
from collections.abc import Callable

from tests.support.parts.aimock import installed as aimock
from tests.support.parts.bubblewrap import bubblewrap
from tests.support.parts.front_ends import agui_package, assistant_ui, front_ends
from tests.support.parts.mcp_servers import node_program, python_program
from tests.support.parts.opa import opa
from tests.support.parts.system_packages import require
from tests.support.parts.temporal import temporal_cli
from tests.support.parts.time_skipping import prepared_test_server

PARTS: dict[str, Callable[[], object]] = {
    "Temporal server": temporal_cli,
    "time-skipping server": prepared_test_server,
    "Open Policy Agent": opa,
    "model protocol server": aimock,
    "bubblewrap": bubblewrap,
    "Chromium": lambda: require("chromium", "chromium"),
    "MCP servers of npm": lambda: node_program("mcp-server-everything"),
    "front ends of npm": front_ends,
    "client of AG-UI": agui_package,
    "assistant-ui": assistant_ui,
    "MCP servers of PyPI": lambda: python_program("mcp-server-time"),
}

if __name__ == "__main__":
    for name, obtain in PARTS.items():
        print(f"{name} …", file=sys.stderr, flush=True)
        obtain()
