"""`orga policy explain` shows why a call of a run was allowed or denied. `orga policy test` runs test cases."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import ExitCode, UsageError, usage_errors
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.shown.text import (
    hanging_lines,
    separated_blocks,
    terminal_line,
    write_json,
    write_note,
    write_result,
)
from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig, PolicyConfig
from orga.client.errors import NoSuchVerdict
from orga.client.journal import event_types as on
from orga.client.journal.event_types import read_event
from orga.client.journal.reading import read_journal
from orga.client.policies.cases import case_files, case_results, read_cases
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.tool_calls.gate import PLAN

if TYPE_CHECKING:
    from orga.activities.adapters.policy.cedar_policy import CedarPolicy
    from orga.activities.adapters.policy.engines import PolicySettings
    from orga.activities.ports import PolicyEngine
    from orga.client.policies.cases import CaseResult

Surface = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Also use the policies in this subfolder of DIR. Default: as in \\[policy].",
        show_default=False,
    ),
]


def chosen_policy_settings(
    folder: Path | None, surface: str | None, config: Path | None, env: dict[str, str]
) -> "PolicySettings":
    """Return the settings for `folder`, else those of the configuration. Raise UsageError if there are no policies."""
    from orga.activities.adapters.policy.engines import engine_name
    from orga.client.config.policy import policy_settings

    if surface is not None and (not surface.replace("-", "").replace("_", "").isalnum() or not surface.isascii()):
        raise UsageError(f"--surface {surface!r}: use only letters, digits, - and _")
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder. Name one that has *.cedar files")
    with usage_errors():
        policy = PolicyConfig(engine="cedar", dir=folder) if folder is not None else load_config(config).policy
        settings = policy_settings(policy, env)
    if engine_name(settings) in {"default", "allow"}:
        raise UsageError("there are no policies. Put *.cedar files into policies/ next to orga.toml, or name a folder")
    return settings if surface is None else replace(settings, surface=surface)


def build_policy_engine(settings: "PolicySettings") -> "PolicyEngine":
    """Return the engine. Raise UsageError if it cannot be built. The error lists every problem of the Cedar files."""
    from orga.activities.adapters.policy.engines import policy_engine

    with usage_errors():
        return policy_engine(settings)


_PLACE = re.compile(r"(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class Explanation:
    """One verdict, and the proposal that it judged."""

    place: str
    """`3.0` for a call or an answer of iteration 3, `3.plan` for its plan. Calls of a saga and fallbacks have longer
    places, such as `3.0.s1`."""
    agent: str
    proposal: on.RecordedAction | None
    """None for a call that was not in the model's reply: a lookup, a fallback, a dead letter."""
    verdict: on.RecordedVerdict
    starter_facts: dict[str, Any] = field(default_factory=dict[str, Any])
    """Trusted context and tenant, from the starter of the run."""


def explanations(entries: Iterable[JournalEntry], place: str | None = None) -> list[Explanation]:
    """Return the verdicts of the run itself, not of its delegates. `place` (`3` or `3.0`) selects those at or below it.

    Raise NoSuchVerdict if there are none.
    """
    if place is not None and not _PLACE.fullmatch(place):
        raise NoSuchVerdict(f"{place!r} is no place; write ITERATION or ITERATION.INDEX, as in 3.0")
    items = [
        item
        for item in _all_explanations(entries)
        if place is None or item.place == place or item.place.startswith(f"{place}.")
    ]
    if not items:
        raise NoSuchVerdict(f"there is no verdict at {place}" if place else "nothing was judged yet")
    return items


def _all_explanations(entries: Iterable[JournalEntry]) -> Iterator[Explanation]:
    starter_facts, actions = dict[str, Any](), tuple[on.RecordedAction, ...]()
    for entry in entries:
        event = None if entry.run else read_event(entry)
        if isinstance(event, on.Started):
            starter_facts = {name: event.input[name] for name in ("trusted_context", "tenant") if event.input.get(name)}
        elif isinstance(event, on.ReasoningComplete):
            actions = event.actions
        elif isinstance(event, on.PolicyEvaluated):
            proposed = {f"{entry.iteration}.{index}": action for index, action in enumerate(actions)}
            for place, verdict in zip(event.places, event.verdicts, strict=False):
                shown = _shown_place(place, entry.iteration)
                yield Explanation(shown, entry.agent, proposed.get(shown), verdict, starter_facts)


def _shown_place(place: str, iteration: int) -> str:
    if place.isdecimal():  # an answer, which is the only proposal of its iteration
        return f"{place}.0"
    return f"{iteration}.{PLAN}" if place == PLAN else place


SHOWN_CHARS = 600


class _CurrentPolicies(NamedTuple):
    """The policies that the files contain now."""

    by_id: Mapping[str, "CedarPolicy"] = {}
    version: str = ""


async def explain(
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
) -> None:
    """Show the verdicts of a run: proposal, decision, and the policies that decided, with their text.

    The verdicts come from the journal, so no worker is needed. The texts come from today's files; a note reports if
    they have changed.

    Example: orga policy explain ID 3.0
    """
    async with run_context(run, config) as (context, run_id):
        entries = [entry async for entry in read_journal(context.client, run_id)]
        current = _current_policies(context.config)
    items = explanations(entries, place)
    if json:
        write_json([_explanation_json(item, current) for item in items])
    else:
        write_result(*separated_blocks(_explanation_lines(item, current) for item in items))
    if versions := {item.verdict.version for item in items} - {"", current.version}:
        write_note(f"judged by version {', '.join(versions)}; the policies here are now {current.version or 'none'}")


def _current_policies(config: OrgaConfig) -> _CurrentPolicies:
    from orga.activities.adapters.policy.cedar import read_policies
    from orga.activities.adapters.policy.cedar_files import files_version, policy_files
    from orga.activities.adapters.problem import BrokenPolicies
    from orga.client.config.policy import policy_settings

    settings = policy_settings(config.policy, os.environ)
    if settings.folder is None:
        return _CurrentPolicies()
    try:
        files = policy_files(settings.folder, settings.surface)
    except BrokenPolicies as error:
        write_note(*hanging_lines("orga: ", str(error)))
        return _CurrentPolicies()
    return _CurrentPolicies({policy.policy_id: policy for policy in read_policies(files)[0]}, files_version(files))


def _explanation_lines(item: Explanation, current: _CurrentPolicies) -> list[str]:
    verdict = item.verdict
    lines = [f"{item.place} {_proposal_text(item)}: {verdict.decision}"]
    if verdict.reason:
        lines.append(f"  because: {terminal_line(verdict.reason, SHOWN_CHARS)}")
    changes = {"arguments": verdict.arguments, "approval": verdict.approval, "tools": verdict.tools}
    changes = {name: value for name, value in changes.items() if value is not None}
    for name, value in ({"agent": item.agent} | item.starter_facts | changes).items():
        lines.append(f"  {name}: {terminal_line(str(value), SHOWN_CHARS)}")
    lines.append(f"  version: {verdict.version or 'none, the engine has no versions'}")
    for policy_id in verdict.policies:
        lines += _policy_lines(policy_id, current)
    if not verdict.policies and verdict.decision == "deny" and verdict.version:
        lines.append("  no policy permits it, so it is denied")
    return lines


def _policy_lines(policy_id: str, current: _CurrentPolicies) -> list[str]:
    policy = current.by_id.get(policy_id)
    if policy is None:
        return [f"  policy {policy_id}"]
    return [
        f"  policy {policy_id} ({policy.statement.place})",
        *(f"    {line}" for line in policy.statement.text.splitlines()),
    ]


def _proposal_text(item: Explanation) -> str:
    if item.proposal is None:
        return "a call that is not in the reply (a lookup, a fallback, a dead letter)"
    if item.proposal.tool is None:
        return terminal_line(f"the final answer {item.proposal.respond!r}", SHOWN_CHARS)
    return terminal_line(f"{item.proposal.tool} {item.proposal.arguments}", SHOWN_CHARS)


def _explanation_json(item: Explanation, current: _CurrentPolicies) -> dict[str, Any]:
    statements = {
        policy_id: current.by_id[policy_id].statement
        for policy_id in item.verdict.policies
        if policy_id in current.by_id
    }
    return {
        "place": item.place,
        "agent": item.agent,
        "about": item.proposal.as_recorded() if item.proposal else {},
        "given": item.starter_facts,
        "verdict": item.verdict.as_recorded(),
        "policies": {policy_id: {"place": s.place, "text": s.text} for policy_id, s in statements.items()},
    }


async def run_tests(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE|DIR",
            help="A folder of policies with *.test.toml files, or one of these files. Default: as in orga.toml.",
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
    engine, files = build_policy_engine(settings), [read_cases(file) for file in case_files(tests)]
    results = [result for cases in files async for result in case_results(engine, cases)]
    if json:
        write_json([_case_json(result) for result in results])
    else:
        lines = list[str]()
        for result in results:
            by = ", ".join(result.verdict.policies) or result.verdict.reason or "default"
            lines.append(f"{'✓' if result.ok else '✗'} {result.outcome:<8} {result.name} ({by})")
            lines += [f"    → expected {fault}" for fault in result.faults]
        write_result(*lines)
    failed = sum(not result.ok for result in results)
    write_note(f"{len(results)} tests, {f'{failed} failed' if failed else 'all passed'}")
    return ExitCode.FAILED if failed else ExitCode.COMPLETED


def _case_json(result: "CaseResult") -> dict[str, object]:
    verdict = result.verdict
    return {
        "name": result.name,
        "ok": result.ok,
        "outcome": result.outcome,
        "policies": verdict.policies,
        "reason": verdict.reason,
        "version": verdict.version,
        "faults": result.faults,
    }
