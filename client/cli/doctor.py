"""`orga doctor`: what works, what does not, and how to mend it."""

from dataclasses import asdict
from typing import Annotated

import typer

from orga.client.cli.checks import Check, all_checks
from orga.client.cli.exit_codes import ExitCode
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, result
from orga.client.cli.terminal_text import behind


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Also let the default agent's model answer once.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Check configuration, folder, server, search attributes, workers, agents, tools and models.

    Each model's provider is asked for its list of models, which costs nothing and shows whether address and key are
    right; --deep lets the default agent's model answer. Exit code 6 when anything has to be mended.

    Example: orga doctor --deep
    """

    async def examined() -> int:
        found: list[Check] = []
        async for check in all_checks(config, deep=deep):
            found.append(check)
            if not json:
                result(*shown(check))
        if json:
            json_result([asdict(check) for check in found])
        return 0 if all(check.ok for check in found) else ExitCode.FAILED

    return completed(examined())


def shown(check: Check) -> list[str]:
    """Return the check, with the remedy under it."""
    mark = "!" if check.warning else "✓" if check.ok else "✗"
    lines = behind(f"{mark} {check.name}: ", check.detail)
    return [*lines, f"    → {check.remedy}"] if check.remedy and (check.warning or not check.ok) else lines
