"""Commands in the sandbox, and the processes that they leave running."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from orga.activities.adapters.sandbox.limited_command import CommandResult, run_sandboxed

AWAY = "setsid sh -c 'setsid sh -c \"echo \\$\\$ >> pids; exec sleep 60\" & echo $$ >> pids; exec sleep 60' &"
"""Two processes leave their session, one of them without a parent."""


async def run_to_end(folder: Path, *argv: str, **more: Any) -> CommandResult:
    """Run a command to its end."""
    given: dict[str, Any] = {"cwd": folder, "env": {}, "timeout_s": 30, "max_output_bytes": 10_000, **more}
    return await run_sandboxed(argv, **given)


async def python(folder: Path, code: str, **more: Any) -> CommandResult:
    """Run a piece of Python."""
    return await run_to_end(folder, sys.executable, "-c", code, **more)


async def shell(folder: Path, script: str, **more: Any) -> CommandResult:
    """Run a shell script."""
    return await run_to_end(folder, "sh", "-c", script, **more)


def living_processes(folder: Path) -> list[int]:
    """Return which of the processes that wrote their ids exist. Zombies count."""
    return [pid for pid in map(int, (folder / "pids").read_text().split()) if Path(f"/proc/{pid}").exists()]


async def until_written(path: Path, lines: int) -> None:
    """Wait until a file has this many lines."""
    async with asyncio.timeout(20):
        while not path.exists() or path.read_text().count("\n") < lines:
            await asyncio.sleep(0.02)


async def until_gone(folder: Path) -> None:
    """Wait until none of the processes that wrote their ids exists."""
    async with asyncio.timeout(20):
        while living_processes(folder):
            await asyncio.sleep(0.02)
