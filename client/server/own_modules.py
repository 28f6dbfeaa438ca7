"""Running a module of this package as a process of its own."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Working directory for `module_command`: `-m` looks there first, whatever directory the user is in."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the argument vector that runs `module` with this Python."""
    return [sys.executable, "-m", module, *arguments]
