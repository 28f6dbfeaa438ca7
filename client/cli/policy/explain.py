"""`orga policy explain` shows why a call of a run was allowed or denied. `orga policy test` runs test cases."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.shown.text import (
    hanging_lines,
    on_one_line,
    separated_blocks,
    write_json,
    write_note,
    write_result,
)
from orga.client.config.file import LoadedConfig, load_config
from orga.client.journal.reading import read_journal
from orga.client.policies.cases import case_files, case_results, read_cases
from orga.client.policies.explained import Explanation, explanations

if TYPE_CHECKING:
    from orga.activities.adapters.policy.cedar_policy import CedarPolicy
    from orga.activities.adapters.policy.ladder import PolicySettings
    from orga.activities.ports import PolicyEngine
    from orga.client.policies.cases import CaseResult

Surface = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Also use the policies in this folder of DIR. Default: as in \\[policy].",
        show_default=False,
    ),
]


def chosen_policy_settings(
    folder: Path | None, surface: str | None, config: Path | None, env: dict[str, str]
) -> "PolicySettings":
    """Return the settings for a folder, or the configuration's. Raise UsageError if there are no such policies."""
    from orga.activities.adapters.policy.ladder import engine_name
    from orga.client.config.policy_settings import policy_settings
    from orga.client.config.sections import PolicyConfig

    if surface is not None and (not surface.replace("-", "").replace("_", "").isalnum() or not surface.isascii()):
        raise UsageError(f"--surface {surface!r}: use only letters, digits, - and _")
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder. Name one that has *.cedar files")
    try:
        policy = PolicyConfig(engine="cedar", dir=folder) if folder is not None else load_config(config).config.policy
        settings = policy_settings(policy, env)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if engine_name(settings) in {"default", "allow"}:
        raise UsageError("there are no policies. Put *.cedar files into policies/ next to orga.toml, or name a folder")
    return settings if surface is None else replace(settings, surface=surface)


def build_policy_engine(settings: "PolicySettings") -> "PolicyEngine":
    """Return the engine. Raise UsageError, for Cedar files with every problem, if it cannot be built."""
    from orga.activities.adapters.policy.ladder import policy_engine

    try:
        return policy_engine(settings)
    except ValueError as error:
        raise UsageError(str(error)) from None


SHOWN_CHARS = 600

Sources = tuple[Mapping[str, "CedarPolicy"], str]
"""The current policies by id, and their version."""


def explain(
    run: RunId,
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="ITERATION[.INDEX]", help="3 means iteration 3, 3.0 its first call.", show_default=False
        ),
    ] = None,
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show the verdicts of a run: proposal, decision, and the policies that decided, with their text.

    The verdicts come from the journal, so no worker is needed. The texts come from today's files; a note reports if
    they have changed.

    Example: orga policy explain ID 3.0
    """
    return run_interruptible(_explain(run, place, config, as_json=json))


async def _explain(named: str, place: str | None, config: Path | None, *, as_json: bool) -> int:
    async with run_context(named, config) as (here, run_id):
        entries = [entry async for entry in read_journal(here.client, run_id)]
        sources = _policy_sources(here.loaded)
    found = explanations(entries, place)
    if as_json:
        write_json([_explanation_json(item, sources) for item in found])
    else:
        write_result(*separated_blocks(_explanation_lines(item, sources) for item in found))
    if versions := {item.verdict.version for item in found} - {"", sources[1]}:
        write_note(f"judged by version {', '.join(versions)}; the policies here are now {sources[1] or 'none'}")
    return 0


def _policy_sources(loaded: LoadedConfig) -> Sources:
    from orga.activities.adapters.policy.cedar import read_policies
    from orga.activities.adapters.policy.cedar_files import files_version, policy_files
    from orga.activities.adapters.problem import BrokenPolicies
    from orga.client.config.policy_settings import policy_settings

    settings = policy_settings(loaded.config.policy, os.environ)
    if settings.folder is None:
        return {}, ""
    try:
        files = policy_files(settings.folder, settings.surface)
    except BrokenPolicies as error:
        write_note(*hanging_lines("orga: ", str(error)))
        return {}, ""
    return {policy.policy_id: policy for policy in read_policies(files)[0]}, files_version(files)


def _explanation_lines(item: Explanation, sources: Sources) -> list[str]:
    verdict = item.verdict
    lines = [f"{item.place} {_proposal_text(item)}: {verdict.decision}"]
    if verdict.reason:
        lines.append(f"  because: {on_one_line(verdict.reason, SHOWN_CHARS)}")
    changes = {"arguments": verdict.arguments, "approval": verdict.approval, "tools": verdict.tools}
    changes = {name: value for name, value in changes.items() if value is not None}
    for name, value in ({"agent": item.agent} | item.given | changes).items():
        lines.append(f"  {name}: {on_one_line(str(value), SHOWN_CHARS)}")
    lines.append(f"  version: {verdict.version or 'none, the engine has no versions'}")
    for policy_id in verdict.policies:
        lines += _policy_lines(policy_id, sources)
    if not verdict.policies and verdict.decision == "deny" and verdict.version:
        lines.append("  no policy permits it, so it is denied")
    return lines


def _policy_lines(policy_id: str, sources: Sources) -> list[str]:
    policy = sources[0].get(policy_id)
    if policy is None:
        return [f"  policy {policy_id}"]
    return [
        f"  policy {policy_id} ({policy.statement.place})",
        *(f"    {line}" for line in policy.statement.text.splitlines()),
    ]


def _proposal_text(item: Explanation) -> str:
    if item.about is None:
        return "a call that is not of the reply (a lookup, a fallback, a dead letter)"
    if item.about.tool is None:
        return on_one_line(f"the final answer {item.about.respond!r}", SHOWN_CHARS)
    return on_one_line(f"{item.about.tool} {item.about.arguments}", SHOWN_CHARS)


def _explanation_json(item: Explanation, sources: Sources) -> dict[str, Any]:
    found = {policy_id: sources[0].get(policy_id) for policy_id in item.verdict.policies}
    texts = {i: {"place": p.statement.place, "text": p.statement.text} for i, p in found.items() if p is not None}
    return {
        "place": item.place,
        "agent": item.agent,
        "about": item.about.as_recorded() if item.about else {},
        "given": item.given,
        "verdict": item.verdict.as_recorded(),
        "policies": texts,
    }


def run_tests(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE|DIR",
            help="A folder of policies with *.test.toml, or one such file in it. Default: the folder of orga.toml.",
            show_default=False,
        ),
    ] = None,
    *,
    surface: Surface = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Judge the proposals of *.test.toml files by the policies next to them. Exit code 6 means that a case failed.

    Nothing is run, and no Temporal server is needed. OPA policies need the OPA server.

    Example: orga policy test policies
    """
    folder = path.parent if path is not None and path.is_file() else path
    settings = chosen_policy_settings(folder, surface, config, dict(os.environ))
    tests = path or settings.folder
    if tests is None:
        raise UsageError("FILE: is missing. Name the file with the tests: orga policy test FILE")
    found = asyncio.run(_case_results(build_policy_engine(settings), tests))
    if json:
        write_json([_case_json(done) for done in found])
    else:
        write_result(*chain.from_iterable(map(_case_lines, found)))
    failed = sum(not done.ok for done in found)
    write_note(f"{len(found)} tests, {f'{failed} failed' if failed else 'all passed'}")
    return ExitCode.FAILED if failed else 0


async def _case_results(engine: "PolicyEngine", path: Path) -> "list[CaseResult]":
    files = [read_cases(file) for file in case_files(path)]
    return [done for cases in files async for done in case_results(engine, cases)]


def _case_lines(done: "CaseResult") -> list[str]:
    by = ", ".join(done.verdict.policies) or done.verdict.reason or "default"
    head = f"{'✓' if done.ok else '✗'} {done.outcome:<8} {done.name} ({by})"
    return [head, *(f"    → expected {fault}" for fault in done.faults)]


def _case_json(done: "CaseResult") -> dict[str, object]:
    verdict = done.verdict
    return {
        "name": done.name,
        "ok": done.ok,
        "outcome": done.outcome,
        "policies": verdict.policies,
        "reason": verdict.reason,
        "version": verdict.version,
        "faults": done.faults,
    }
