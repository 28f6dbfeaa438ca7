"""Third-party front ends, and the Node that they need, installed once for the tests."""

import os
from functools import cache
from pathlib import Path

from tests.support.parts.mcp_servers import installed_folder, with_npm

PACKAGES = (
    "node@22.23.3",
    "acpx@0.19.1",
    "@agentclientprotocol/sdk@1.4.0",
    "@modelcontextprotocol/inspector@2.12.0",
)


@cache
def front_ends() -> Path:
    """Return the folder of the packages."""
    return installed_folder("front-ends-node", lambda folder: with_npm(folder, *PACKAGES)) / "node_modules"


@cache
def agui_package() -> Path:
    """Return the folder with the client of AG-UI."""
    return installed_folder("agui-node", lambda folder: with_npm(folder, "@ag-ui/client@1.0.0"))


@cache
def assistant_ui() -> Path:
    """Return the folder with assistant-ui, and with a document that replaces a browser."""
    packages = (
        "@assistant-ui/react-ag-ui@0.0.57",
        "@assistant-ui/react@0.15.22",
        "react@19.3.1",
        "react-dom@19.3.1",
        "jsdom@29.1.1",
    )
    return installed_folder("assistant-ui-node", lambda folder: with_npm(folder, *packages))


def front_end_path() -> str:
    """Return a PATH that contains their programs."""
    return f"{front_ends() / '.bin'}{os.pathsep}{os.environ['PATH']}"
