"""The `temporal` command for tests: found as users' commands find it, so a fresh machine fetches it once."""

import asyncio
import sys
from pathlib import Path

from orga.client.server.locate import locate


def temporal_cli() -> Path:
    """Return the executable; outside of a running event loop."""
    return asyncio.run(locate(_tell))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
