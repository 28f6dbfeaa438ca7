"""`orga approve` and `orga deny`: a person decides about held calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from json import loads
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, cast

import typer

from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, DecidedBy, Json, Reason, RunId, login_name, text_or_file
from orga.client.cli.shown import decisions
from orga.client.cli.shown.decisions import held_call_table, held_calls
from orga.client.cli.shown.text import hanging_lines, separated_blocks, write_json, write_note, write_result
from orga.client.errors import Refused
from orga.client.runs.agents import AgentHandle
from orga.workflows.types.json_text import unique_keys_object

Approvals = Annotated[
    list[str] | None,
    typer.Argument(metavar="APPROVAL", help="The ids of the calls. `orga inbox` shows them.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="All calls that the run holds now.")]


@dataclass(frozen=True)
class _ApprovalDecision:
    verdict: Literal["approved", "denied"]
    run_id: str
    approvals: tuple[str, ...]
    all: bool
    by: str
    reason: str
    arguments: Mapping[str, Any] | None = None
    """The arguments of the one call, if they are changed."""


def approve(
    run: RunId,
    approval: Approvals = None,
    *,
    all_: All = False,
    show: Annotated[bool, typer.Option("--show", help="Only show the calls, with all of their arguments.")] = False,
    arguments: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE", help="Approve the call with these arguments instead; @FILE reads them from a file."
        ),
    ] = None,
    by: DecidedBy = None,
    reason: Reason = "",
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """An approval is valid once, for exactly the call that was shown, or with the arguments that you give. Policy
    judges those, too. The first decision counts.

    Example: orga approve ID 3f29c5d27a4b91e0c6d8f713 --reason "Agreed with the customer."

    Example: orga approve ID --arguments '{"amount": 40}'

    Example: orga approve ID --show
    """
    if show:
        return run_interruptible(_show_held_calls(run, _distinct_ids(approval), config, as_json=json))
    changed = None if arguments is None else _parsed_arguments(arguments)
    approvals = _distinct_ids(approval)
    if changed is not None and (all_ or len(approvals) > 1):
        raise UsageError("--arguments: are those of one call. Name it, without --all")
    decision = _ApprovalDecision("approved", run, approvals, all_, _decider_name(by), reason, changed)
    return _run_decision(decision, config, as_json=json)


def _parsed_arguments(given: str) -> dict[str, Any]:
    try:
        value = loads(text_or_file("--arguments", given), object_pairs_hook=unique_keys_object)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--arguments: give a JSON object; this is no valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise UsageError("--arguments: give a JSON object with all arguments of the call")
    return cast("dict[str, Any]", value)


def deny(
    run: RunId,
    approval: Approvals = None,
    *,
    all_: All = False,
    by: DecidedBy = None,
    reason: Annotated[str, typer.Option(help="The reason, which the model reads.")] = "",
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Example: orga deny ID 3f29c5d27a4b91e0c6d8f713 --reason "Too much, ask for half." """
    return _run_decision(
        _ApprovalDecision("denied", run, _distinct_ids(approval), all_, _decider_name(by), reason), config, as_json=json
    )


async def _show_held_calls(named: str, approvals: tuple[str, ...], config: Path | None, *, as_json: bool) -> int:
    """Show these calls, or all held calls if none is named."""
    async with run_context(named, config) as (here, run_id):
        held = (await here.run(run_id).live_status()).pending_approvals
    if missing := set(approvals) - {question.approval_id for question in held}:
        raise UsageError(f"run {run_id!r} holds no call {', '.join(sorted(missing))}. `orga inbox` shows what waits")
    shown = [question for question in held if not approvals or question.approval_id in approvals]
    if not shown:
        raise _no_held_call(run_id)
    if as_json:
        write_json([decisions.approval_json(question) for question in shown])
    else:
        write_result(*separated_blocks(decisions.approval_blocks(run_id, shown)))
    return ExitCode.COMPLETED


def _distinct_ids(approvals: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(approvals or ()))


def _no_held_call(run_id: str) -> UsageError:
    return UsageError(f"run {run_id!r} holds no call for a person. `orga inbox` shows what waits")


def _decider_name(by: str | None) -> str:
    if who := login_name() if by is None else by:
        return who
    raise UsageError("--by: cannot determine your user name. Add --by NAME")


def _run_decision(decision: _ApprovalDecision, config: Path | None, *, as_json: bool) -> int:
    if decision.approvals and decision.all:
        raise UsageError("--all: cannot be combined with APPROVAL. Give one of them")
    return run_interruptible(_send_decisions(decision, config, as_json=as_json))


async def _send_decisions(decision: _ApprovalDecision, config: Path | None, *, as_json: bool) -> int:
    taken, refused = list[str](), dict[str, str]()
    async with run_context(decision.run_id, config) as (here, run_id):
        decision = replace(decision, run_id=run_id)
        run = here.run(run_id)
        for approval_id in decision.approvals or await _held_call_ids(run, decision):
            try:
                if decision.verdict == "denied":
                    await run.deny(approval_id, decision.by, decision.reason)
                else:
                    await run.approve(approval_id, decision.by, decision.reason, arguments=decision.arguments)
                taken.append(approval_id)
            except Refused as error:
                refused[approval_id] = str(error)
    if as_json:
        write_json(_decision_json(decision, taken, refused))
    elif taken:
        decided = f"{decision.verdict} by {decision.by}: {', '.join(taken)} of {run.id}"
        write_note(f"{decided}; follow it: orga attach {quote(run.id)}")
    for why in refused.values():
        write_note(*hanging_lines("orga: ", why))
    return ExitCode.USAGE if refused else ExitCode.COMPLETED


async def _held_call_ids(run: AgentHandle, decision: _ApprovalDecision) -> list[str]:
    """Return the calls that are meant if none is named. Raise UsageError, with the held calls, if that is unclear."""
    status = await run.live_status()
    calls = [call for wait in status.waiting for call in held_calls(wait)]
    if not calls:
        raise _no_held_call(run.id)
    if len(calls) > 1 and not decision.all:
        write_note(*held_call_table(calls, datetime.now(UTC)))
        raise UsageError(f"run {run.id!r} holds {len(calls)} calls. Name some, or add --all")
    return [str(call["id"]) for call in calls]


def _decision_json(decision: _ApprovalDecision, taken: list[str], refused: dict[str, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": decision.run_id, decision.verdict: taken, "by": decision.by}
    reason = {"reason": decision.reason} if decision.reason else {}
    return shown | reason | ({"refused": refused} if refused else {})
