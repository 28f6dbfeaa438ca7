"""`orga policy test`: tables of proposals and what has to come of them."""

import asyncio
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.policy.options import Surface, chosen, engine_of
from orga.client.policies.cases import case_files, read_cases

if TYPE_CHECKING:
    from orga.activities.ports import PolicyEngine
    from orga.client.policies.results import CaseResult


def run_tests(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE|DIR",
            help="Folder of policies with *.test.toml, or one such file beside them; else as orga.toml says.",
            show_default=False,
        ),
    ] = None,
    *,
    surface: Surface = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Judge the proposals of *.test.toml files by the policies beside them. Exit code 6 when one comes out otherwise.

    Nothing is run and no server of Temporal is needed; with OPA its server is asked.

    Example: orga policy test policies
    """
    folder = path.parent if path is not None and path.is_file() else path
    settings = chosen(folder, surface, config, dict(os.environ))
    tests = path or settings.folder
    if tests is None:
        raise UsageError("name the file with the tests: orga policy test FILE")
    found = asyncio.run(_all(engine_of(settings), tests))
    if json:
        json_result([_json(done) for done in found])
    else:
        result(*chain.from_iterable(map(_lines, found)))
    failed = sum(not done.ok for done in found)
    note(f"{len(found)} tests, {f'{failed} failed' if failed else 'all passed'}")
    return ExitCode.FAILED if failed else 0


async def _all(engine: "PolicyEngine", path: Path) -> "list[CaseResult]":
    from orga.client.policies.results import results

    files = [read_cases(file) for file in case_files(path)]
    return [done for cases in files async for done in results(engine, cases)]


def _lines(done: "CaseResult") -> list[str]:
    by = ", ".join(done.judgement.policies) or done.judgement.reason or "default"
    head = f"{'✓' if done.ok else '✗'} {done.outcome:<8} {done.name} ({by})"
    return [head, *(f"    → expected {fault}" for fault in done.faults)]


def _json(done: "CaseResult") -> dict[str, object]:
    judgement = done.judgement
    return {
        "name": done.name,
        "ok": done.ok,
        "outcome": done.outcome,
        "policies": judgement.policies,
        "reason": judgement.reason,
        "version": judgement.version,
        "faults": done.faults,
    }
