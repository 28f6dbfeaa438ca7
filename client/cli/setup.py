"""`orga setup`: what a Temporal server needs before runs can be found by their agent, phase, cost."""

from pathlib import Path

from orga.client.cli.exit_codes import ExitCode
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.session import session
from orga.client.cli.terminal_text import behind
from orga.client.server.search_attributes import SearchAttributesRefused, register
from orga.workflows.types.names import KEYS


def setup(json: Json = False, config: ConfigFile = None) -> int:
    """Register the search attributes on the configured server; the embedded one has them already.

    Example: TEMPORAL_ADDRESS=temporal.example:7233 orga setup
    """
    return completed(_setup(config, as_json=json))


async def _setup(config: Path | None, *, as_json: bool) -> int:
    async with session(config) as here:
        try:
            added = await register(here.client)
        except SearchAttributesRefused as error:
            note(*behind("orga: ", str(error)))
            return ExitCode.FAILED
    if as_json:
        json_result({"registered": added, "all": [key.name for key in KEYS]})
    else:
        result(f"registered {', '.join(added)}" if added else f"all {len(KEYS)} search attributes are there")
    return 0
