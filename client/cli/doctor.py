"""`orga doctor`: what works, what does not, and how to mend it."""

from dataclasses import asdict
from typing import Annotated

import typer

from client.cli.checks import Check, all_checks
from client.cli.exit_codes import ExitCode
from client.cli.interrupts import completed
from client.cli.options import ConfigFile, Json
from client.cli.output import json_result, result


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Also let the default agent's model answer once.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Check configuration, folder, server, search attributes, workers, agents, tools and models.

    Exit code 6 when anything has to be mended.

    Example: orga doctor --deep
    """

    async def examined() -> int:
        found: list[Check] = []
        async for check in all_checks(config, deep=deep):
            found.append(check)
            if not json:
                result(shown(check))
        if json:
            json_result([asdict(check) for check in found])
        return 0 if all(check.ok for check in found) else ExitCode.FAILED

    return completed(examined())


def shown(check: Check) -> str:
    """Return the check as a line, with the remedy under it."""
    line = f"{'✓' if check.ok else '✗'} {check.name}: {check.detail}"
    return f"{line}\n    → {check.remedy}" if check.remedy and not check.ok else line
