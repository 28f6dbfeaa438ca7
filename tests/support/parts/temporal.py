"""The `temporal` command for tests, found as users' commands find it, so that a fresh machine downloads it once."""

import asyncio
import sys
from pathlib import Path

from orga.client.server.locate import locate


def temporal_cli() -> Path:
    """Return the executable. Call it outside of a running event loop."""
    return asyncio.run(locate(_print))


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
